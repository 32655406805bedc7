"""Files of a task end at their size, rows of a partition are grouped, and values have Java's form."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecdc.model.iceberg_columns import UnknownTypeError, arrow_field
from lakecdc.writer.files import PartitionFiles
from lakecdc.writer.parquet import FileColumn, FileLayout
from lakecdc.writer.partitions import PartitionColumn, by_partition, in_order
from lakecdc.writer.transforms import Transform

COLUMNS = (FileColumn(1, "id", "long", True, "c0"),)


def write_and_list(
    folder: Path, tables: list[pa.Table], file_bytes: int, names: list[str]
) -> list[tuple[list[int], list[int]]]:
    """Write tables; return the partition values and ids of each file."""
    by = tuple(PartitionColumn("c0", Transform("identity", "id")) for _ in names)
    files = PartitionFiles(FileLayout(str(folder), {}, COLUMNS, by, file_bytes=file_bytes), "rows")
    batches = [batch for table in tables for batch in files.write(table)]
    rows = [row for batch in (*batches, *files.close()) for row in batch.to_pylist()]
    return [(json.loads(row["partition"]), pq.read_table(row["location"])["id"].to_pylist()) for row in rows]


def test_files_end_at_their_size(tmp_path: Path) -> None:
    tables = [pa.table({"c0": [1, 2], "p0": [7, 8]}), pa.table({"c0": [3, 4], "p0": [8, 9]})]
    assert write_and_list(tmp_path, tables, 1 << 29, ["p0"]) == [([7], [1]), ([8], [2, 3]), ([9], [4])]
    assert write_and_list(tmp_path, tables, 1, ["p0"]) == [([7], [1]), ([8], [2]), ([8], [3]), ([9], [4])]
    assert write_and_list(tmp_path, tables, 1 << 29, []) == [([], [1, 2, 3, 4])]
    assert write_and_list(tmp_path, [tables[0].slice(0, 0)], 1, []) == []


def test_rows_of_a_partition_are_grouped_in_their_order() -> None:
    mixed = pa.table({"c0": [1, 2, 3, 4, 5], "p0": ["b", "a", None, "b", "a"], "p1": [0, 0, 0, 0, 1]})
    ordered = in_order(mixed, ["p0", "p1"])
    assert ordered["c0"].to_pylist() == [2, 5, 1, 4, 3]
    backwards = pa.table({"c0": [1, 2, 3], "p0": ["b", "b", "a"]})
    assert in_order(backwards, ["p0"]) is backwards and in_order(mixed, []) is mixed


def test_times_beyond_pythons_range_are_formatted() -> None:
    micros = {-1: "1969-12-31T23:59:59.999999", 253_402_300_800_000_000: "+10000-01-01T00:00:00.000000"}
    for zone, end in ((None, ""), ("UTC", "+00:00")):
        table = pa.table({"p0": pa.array(micros, pa.int64()).cast(pa.timestamp("us", zone))})
        assert [values for values, _ in by_partition(table, ["p0"])] == [(text + end,) for text in micros.values()]
    days = {-719_893: "-0001-01-01", -719_528: "0000-01-01", 2_932_897: "+10000-01-01"}
    table = pa.table({"p0": pa.array(days, pa.int32()).cast(pa.date32())})
    assert [values for values, _ in by_partition(table, ["p0"])] == [(text,) for text in days.values()]
    assert datetime.date(9999, 12, 31).toordinal() - datetime.date(1970, 1, 1).toordinal() == 2_932_896


def test_types_that_tasks_cannot_write_are_named() -> None:
    nested = {"type": "list", "element-id": 2, "element": "geometry", "element-required": False}
    empty = {"type": "struct", "fields": []}
    for kind, name in ((nested, "geometry"), (empty, "struct<>"), ("variant", "variant")):
        with pytest.raises(UnknownTypeError, match=f"^{name}$"):
            arrow_field(1, "c", kind, False)


def test_columns_with_repeated_values_are_dictionary_encoded(tmp_path: Path) -> None:
    columns = (*COLUMNS, FileColumn(2, "status", "string", False, "c1"))
    files = PartitionFiles(FileLayout(str(tmp_path), {}, columns), "rows")
    list(files.write(pa.table({"c0": range(1000), "c1": ["new", "paid"] * 500})))
    (row,) = (row for batch in files.close() for row in batch.to_pylist())
    group = pq.ParquetFile(row["location"]).metadata.row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(2)] == [False, True]
