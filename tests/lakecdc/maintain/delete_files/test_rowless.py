"""Delete files without rows are removed, of every kind and in every scope; files that only seem to have none stay."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.errors import UnsupportedError
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.jvm import int_array, jvm
from lakecdc.iceberg.staging import stage_equality_deletes
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.java_tables import JavaTable
from tests.lakecdc.maintain.delete_files.support import change, convert, create, insert, pyiceberg_rows, run, spark_rows
from tests.lakecdc.maintain.support import count
from tests.versions import V3


def numbers(lake: Lake, version: int) -> JavaTable:
    table = JavaTable(lake, {"id": "int", "x": "double"}, version)
    table.append(*({"id": number, "x": float(number)} for number in range(5)))
    return table


@pytest.mark.parametrize("options", [{}, pytest.param({"position_deletes": "keep"}, marks=pytest.mark.soak)])
@V3
def test_a_single_equality_delete_without_rows_is_removed(lake: Lake, version: int, options: dict[str, Any]) -> None:
    """The summary has no total for such files, yet every reader opens them with each data file."""
    table = numbers(lake, version)
    table.delete_nothing("id")
    before = spark_rows(lake, table.name)
    report = run(lake, table.name, **options)
    assert (report.outcome, count(lake, table.name, 2)) == ("done", 0)
    assert spark_rows(lake, table.name) == before == pyiceberg_rows(lake, table.name)
    assert (report.metrics["equality_delete_files_before"], report.metrics["positions"]) == (1, 0)
    assert (report.metrics["commits"], report.metrics["scopes"]) == (1, 0)
    assert run(lake, table.name, **options).outcome == "nothing"


@pytest.mark.soak
def test_an_unsupported_key_without_rows_is_removed(lake: Lake) -> None:
    table = numbers(lake, 2)
    table.delete_nothing("x")
    table.delete({"id": 3})
    table.delete_nothing("id")
    before = spark_rows(lake, table.name)
    report = run(lake, table.name)
    assert (report.outcome, report.reason, report.metrics["positions"]) == ("done", None, 1)
    assert (count(lake, table.name, 2), spark_rows(lake, table.name)) == (0, before)


@pytest.mark.soak
def test_deletes_with_rows_stay(lake: Lake) -> None:
    table = numbers(lake, 2)
    table.delete({"x": 2.0})
    table.delete_nothing("x")
    report = run(lake, table.name)
    assert (report.outcome, report.metrics["equality_delete_files_after"]) == ("done", 1)
    with pytest.raises(UnsupportedError, match="has the type double"):
        run(lake, table.name)
    assert [row[0] for row in spark_rows(lake, table.name)] == [0, 1, 3, 4]


def test_position_deletes_without_rows_are_removed(lake: Lake) -> None:
    table = numbers(lake, 2)
    table.delete_nothing()
    rows = spark_rows(lake, table.name)
    assert run(lake, table.name, position_deletes="keep").outcome == "nothing"
    assert run(lake, table.name).metrics["delete_files_superseded"] == 1
    assert (count(lake, table.name, 1), spark_rows(lake, table.name)) == (0, rows)
    assert pyiceberg_rows(lake, table.name) == rows


def test_rows_of_a_file_with_a_count_of_zero_stay_deleted(lake: Lake) -> None:
    name = create(lake, "id bigint", 2)
    insert(lake, name, "SELECT id FROM range(5)")
    table = lake.table(name)
    (written,) = stage_equality_deletes(table, lake.sql("SELECT 3L AS id").coalesce(1), ["id"], 0)
    files = jvm(lake.spark).org.apache.iceberg.FileMetadata.deleteFileBuilder(table.java.spec())
    files = files.ofEqualityDeletes(int_array(lake.spark, [1])).withPath(written.location()).withFormat("PARQUET")
    claimed = files.withFileSizeInBytes(written.fileSizeInBytes()).withRecordCount(0).build()
    append_changes(table, RowChanges(deletes=[claimed]), PositionFence(None))
    change(lake, name, ["id"], "SELECT 4L AS id")
    assert convert(lake, name).metrics["positions"] == 2
    assert [row[0] for row in pyiceberg_rows(lake, name)] == [0, 1, 2]
