"""Convertible deletes are converted; the others stay unchanged and are reported."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.errors import UnsupportedError, VerificationError
from lakecdc.contract.report import TableReport
from lakecdc.iceberg import file_tasks
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.jvm import int_array, jvm
from lakecdc.iceberg.staging import stage_rows
from lakecdc.maintain.delete_files import leftovers
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, create, insert, run, spark_rows
from tests.lakecdc.maintain.support import count, listed_files
from tests.versions import V2, V3


def partly(lake: Lake, name: str, **options: Any) -> TableReport:
    """Run on a table with deletes that must stay: Spark sees the same rows, and the next run has nothing to do."""
    before = spark_rows(lake, name)
    report = run(lake, name, **options)
    assert report.outcome == "done" and "scopes stay: " in str(report.reason)
    assert spark_rows(lake, name) == before
    left = report.metrics["equality_delete_files_after"]
    assert left == count(lake, name, 2) == report.metrics["equality_delete_files_unsupported"]
    head = lake.table(name).head()
    with pytest.raises(UnsupportedError):
        run(lake, name, **options)
    assert lake.table(name).head() == head
    return report


def with_floating_point_key(lake: Lake, version: int) -> str:
    """Create deletes by a floating-point number and by an id in one scope; 19 is deleted by position."""
    name = create(lake, "id bigint, x double", version, write__delete__mode="merge-on-read")
    insert(lake, name, "SELECT id, CAST(id AS double) AS x FROM range(20)")
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 19")
    change(lake, name, ["x"], "SELECT CAST(1 AS double) AS x UNION ALL SELECT CAST(7 AS double)")
    change(lake, name, ["id"], "SELECT id FROM range(5)", "SELECT 3L AS id, CAST(7 AS double) AS x")
    change(lake, name, ["x"], "SELECT CAST(8 AS double) AS x")
    return name


@V2
def test_a_floating_point_key_stays_beside_a_converted_key(lake: Lake, version: int) -> None:
    name = with_floating_point_key(lake, version)
    report = partly(lake, name)
    # 1 is deleted by both; 7 and 8 only by the key that stays, not by position
    assert report.metrics["positions"] == 5
    assert [file.record_count for file in listed_files(lake, name, 1)] == [6]
    assert report.metrics["unsupported"] == [
        {
            "reason": "The equality-delete key with field id 2 has the type double, and engines disagree on which of "
            "its values are equal.",
            "field_ids": [2],
            "spec_ids": [0],
            "equality_delete_files": 2,
            "position_delete_files": 0,
            "scopes": 1,
            "named_scopes": ["the whole table"],
        }
    ]
    rows = spark_rows(lake, name)
    assert sorted(lake.duckdb_rows(name), key=repr) == rows
    assert sorted(row[0] for row in rows) == [3, 5, 6, *range(9, 19)]


@pytest.mark.soak
def test_a_floating_point_key_stays_without_stored_pairs(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_tasks, "MAX_PAIRS", 0)
    name = with_floating_point_key(lake, 2)
    assert partly(lake, name).metrics["positions"] == 5


@pytest.mark.soak
def test_values_that_engines_disagree_on_are_left_to_readers(lake: Lake) -> None:
    """Each reader keeps its interpretation: positions contain neither NaN nor signed zeros."""
    name = create(lake, "id bigint, x double", 2)
    values = "VALUES (0L, double('NaN')), (1L, -0.0D), (2L, 0.0D), (3L, double('-Infinity')), (4L, 1.5D) AS t(id, x)"
    insert(lake, name, f"SELECT * FROM {values}")
    change(lake, name, ["id", "x"], "SELECT * FROM VALUES (0L, double('NaN')), (1L, 0.0D), (2L, -0.0D) AS t(id, x)")
    change(lake, name, ["id"], "SELECT 4L AS id")
    assert partly(lake, name).metrics["positions"] == 1


def delete_of_struct_member(lake: Lake, name: str, row: str, records: int = 1) -> None:
    """Commit an equality delete whose key is ``s.a``, with the partition of a row."""
    table = lake.table(name)
    # no reader gets as far as the file's content, so any file will do
    (data,) = stage_rows(table, lake.sql(row).coalesce(1))
    files = jvm(lake.spark).org.apache.iceberg.FileMetadata.deleteFileBuilder(table.java.spec())
    files = files.ofEqualityDeletes(int_array(lake.spark, [table.field_id("s.a")])).withPath(data.location())
    files = files.withFormat("PARQUET").withFileSizeInBytes(data.fileSizeInBytes()).withRecordCount(records)
    append_changes(table, RowChanges(deletes=[files.withPartition(data.partition()).build()]), PositionFence(None))


def by_region(lake: Lake, version: int) -> str:
    """Create two partitions with deletes by id and region; readers fail on north, with a delete by a struct member."""
    name = create(lake, "id bigint, region string, s struct<a: int>", version, "region")
    rows = "SELECT id, r AS region, named_struct('a', CAST(id AS int)) AS s FROM range(10) CROSS JOIN {} AS t(r)"
    insert(lake, name, rows.format("VALUES ('north'), ('south')"))
    change(
        lake,
        name,
        ["id", "region"],
        "SELECT id, r AS region FROM range(3) CROSS JOIN VALUES ('north'), ('south') AS t(r)",
    )
    delete_of_struct_member(lake, name, "SELECT 1L AS id, 'north' AS region, named_struct('a', 1) AS s")
    # newer than the delete, in a separate partition
    insert(lake, name, rows.format("VALUES ('east')"))
    change(lake, name, ["id", "region"], "SELECT 1L AS id, 'east' AS region")
    return name


@V3
def test_a_scope_that_readers_fail_on_stays_and_others_are_converted(lake: Lake, version: int) -> None:
    name = by_region(lake, version)
    readable = f"SELECT id, region FROM lake.{name} WHERE region <> 'north' ORDER BY region, id"
    before = lake.sql(readable).collect()
    report = run(lake, name)
    assert (report.outcome, report.metrics["positions"], report.metrics["scopes"]) == ("done", 4, 2)
    assert lake.sql(readable).collect() == before and len(before) == 9 + 7
    (left,) = report.metrics["unsupported"]
    assert "is nested" in left["reason"] and left["named_scopes"] == ["region=north"]
    assert (left["equality_delete_files"], left["scopes"]) == (2, 1) == (count(lake, name, 2), 1)
    assert left["field_ids"] == [1, 2, lake.table(name).field_id("s.a")]
    with pytest.raises(UnsupportedError, match="is nested"):
        run(lake, name)


def test_a_global_delete_stays_if_one_scope_must(lake: Lake) -> None:
    """It applies to every scope, so it can be removed only with all of them; deletes of other scopes are converted."""
    name = by_region(lake, 2)
    lake.sql(f"ALTER TABLE lake.{name} DROP PARTITION FIELD region")
    change(lake, name, ["id"], "SELECT 5L AS id")
    report = run(lake, name)
    assert (report.outcome, report.metrics["positions"], count(lake, name, 2)) == ("done", 4, 3)
    assert report.metrics["unsupported"][0]["named_scopes"] == ["region=north", "the whole table"]
    ids = lake.sql(f"SELECT id FROM lake.{name} WHERE region = 'south' ORDER BY id").collect()
    assert [row[0] for row in ids] == [3, 4, 6, 7, 8, 9]


def test_files_missing_in_the_plan_stop_the_job(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the selection missed a data file, its deletes would be removed without being applied."""
    name = create(lake, "id bigint, x double", 2)
    insert(lake, name, "SELECT id, CAST(id AS double) AS x FROM range(20)")
    change(lake, name, ["x"], "SELECT CAST(7 AS double) AS x")
    change(lake, name, ["id"], "SELECT id FROM range(5)")
    rows = spark_rows(lake, name)
    monkeypatch.setattr(leftovers, "pairs_with", lambda *_: frozenset())
    with pytest.raises(VerificationError, match="separates equality deletes from data files"):
        run(lake, name)
    assert (spark_rows(lake, name), count(lake, name, 2)) == (rows, 2)


@pytest.mark.soak
def test_a_dry_run_reports_remaining_deletes(lake: Lake) -> None:
    name = create(lake, "id bigint, x float", 2)
    insert(lake, name, "SELECT id, CAST(id AS float) AS x FROM range(20)")
    change(lake, name, ["x"], "SELECT CAST(7 AS float) AS x")
    change(lake, name, ["id"], "SELECT id FROM range(5)")
    report = run(lake, name, dry_run=True)
    assert (report.outcome, report.metrics["positions"], count(lake, name, 2)) == ("done", 5, 2)
    assert str(report.reason).startswith("Dry run: nothing was changed. 1 equality-delete files in 1 scopes stay")
