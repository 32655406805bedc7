"""Keys go to the tasks of their Iceberg partitions; order keys are the ones of ``ingest.order``."""

from __future__ import annotations

import datetime
import random

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import BinaryType, DateType, IcebergType, LongType, StringType, TimestampType

from lakecdc.ingest.formats.native.grouping import Bucket, bucket_values, grouping
from lakecdc.ingest.formats.native.layout import order_texts
from lakecdc.ingest.order import order_key

RNG = random.Random(3)
NUMBERS = [0, 34, -1, 2**63 - 1, -(2**63), *(RNG.randrange(-(2**40), 2**40) for _ in range(50))]
DAYS = [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), datetime.date(1, 1, 1)]
TIMES = [datetime.datetime(2017, 11, 16, 22, 31, 8, 1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (LongType(), pa.array(NUMBERS, pa.int64())),
        (LongType(), pa.array([-3, 7], pa.int32())),
        (StringType(), pa.array(["iceberg", "", "é東京", "a" * 33])),
        (BinaryType(), pa.array([b"", b"\x00\xff", b"iceberg"])),
        (DateType(), pa.array(DAYS)),
        (TimestampType(), pa.array(TIMES, pa.timestamp("us"))),
    ],
)
def test_buckets_are_iceberg_s(kind: IcebergType, values: pa.Array) -> None:
    plain = values.cast(pa.int64()) if isinstance(kind, TimestampType) else values
    plain = values.cast(pa.int32()) if isinstance(kind, DateType) else plain
    bucket = BucketTransform(num_buckets=16).transform(kind)
    assert bucket_values(values, 16).to_pylist() == [bucket(value) for value in plain.to_pylist()]


def test_groups_hold_whole_keys_and_one_partition() -> None:
    found = grouping(["`lake`.system.bucket(3, `id`)"], ["id"], ["bigint"], 7)
    assert (found.tasks, found.buckets, found.spread) == (9, (Bucket(0, 3),), 3)
    keys = pa.table({"k0": pa.array(range(500), pa.int64()), "hash": pa.array([n * 7919 % 1009 for n in range(500)])})
    placed = found.with_partitions(keys)
    groups = found.groups(placed)
    assert set(groups) == set(range(9))
    assert all(len(set(placed["p0"].to_numpy()[groups == group])) == 1 for group in range(9))


def test_other_transforms_are_grouped_by_hash_and_not_written() -> None:
    for expressions in (["truncate(3, id)"], ["id"], ["bucket(4, other)"], ["days(at)", "bucket(2, id)"]):
        assert grouping(expressions, ["id"], ["bigint"], 4).buckets is None
    assert grouping(["bucket(4, id)"], ["id"], ["decimal(9,2)"], 4).buckets is None
    assert grouping([], ["id"], ["bigint"], 4).buckets == ()


def test_order_keys() -> None:
    parts = [(0, 0, 0, 0, 0), (1, 2, 8, 3, 4), (2**63 - 1, 2**63 - 1, 8, 2**48 - 1, 2**63 - 1), (255, 16, 0, 4095, 1)]
    found = order_texts(513, *(np.array(column, np.int64) for column in zip(*parts, strict=True)))
    assert found.to_pylist() == [order_key(513, *part) for part in parts]
