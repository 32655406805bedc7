"""Rows are cut where their partitions change, and partition values have Iceberg's form."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa

from lakecdc.writer.partitions import by_partition, count_of, find_partitioning, with_partitions

TYPES = {"id": "bigint", "region": "string", "paid": "boolean", "day": "date", "price": "decimal(5,2)"}
SOURCES = {name: f"c{place}" for place, name in enumerate(TYPES)}


def test_each_partition_is_reported_once_with_its_rows() -> None:
    partitioning = find_partitioning(["region", "paid", "`day`", "price"], TYPES, SOURCES)
    assert partitioning is not None
    day = datetime.date(2026, 1, 2)
    rows = [
        (1, None, None, None, None),
        (2, None, None, None, None),
        (3, "a/b=c", True, day, Decimal("1.50")),
        (4, "a/b=c", True, day, Decimal("1.50")),
        (5, "a/b=c", False, day, Decimal("1.50")),
        (6, "", False, day, Decimal("-0.05")),
        (7, "__HIVE_DEFAULT_PARTITION__", False, None, Decimal("-0.05")),
    ]
    kinds = (pa.int64(), pa.string(), pa.bool_(), pa.date32(), pa.decimal128(5, 2))
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    placed = with_partitions(pa.table(dict(zip(SOURCES.values(), columns, strict=True))), partitioning)
    parts = [(values, part["c0"].to_pylist()) for values, part in by_partition(placed, ["p0", "p1", "p2", "p3"])]
    assert parts == [
        ((None, None, None, None), [1, 2]),
        (("a/b=c", True, "2026-01-02", "1.50"), [3, 4]),
        (("a/b=c", False, "2026-01-02", "1.50"), [5]),
        (("", False, "2026-01-02", "-0.05"), [6]),
        (("__HIVE_DEFAULT_PARTITION__", False, None, "-0.05"), [7]),
    ]


def test_an_empty_table_has_no_partition() -> None:
    assert not list(by_partition(pa.table({"p0": pa.array([], pa.int32())}), ["p0"]))
    assert [values for values, _ in by_partition(pa.table({"c0": [1, 2]}), [])] == [()]


def test_the_number_of_partitions_is_known_only_for_buckets() -> None:
    for expressions, count in (
        (["bucket(4, id)", "bucket(3, region)"], 12),
        ([], 1),
        (["bucket(4, id)", "paid"], None),
    ):
        partitioning = find_partitioning(expressions, TYPES, SOURCES)
        assert partitioning is not None and count_of(partitioning) == count
    assert find_partitioning(["bucket(4, other)"], TYPES, SOURCES) is None
