"""Files of a partition spec whose column was dropped: a rewritten manifest loses their partitions.

DuckDB 1.5.5 ends its process on such tables.
"""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import InputError, UnsupportedError
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import stage_equality_deletes, stage_rows
from lakecdc.ingest.tables import check_partitioning
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.expire_partitions import expire_partitions
from lakecdc.maintain.manifests import rewrite_manifests
from lakecdc.maintain.sort import sort_data_files
from tests.conftest import Lake
from tests.lakecdc.maintain.support import (
    Rows,
    append,
    count,
    create,
    listed_files,
    manifests_of_spec,
    run,
    snapshots,
    spark_rows,
)
from tests.versions import V2, V3

_MERGING = "commit.manifest-merge.enabled"


def with_dropped_column(lake: Lake, version: int) -> tuple[str, Rows]:
    """Create a table whose spec 0 partitions by a prefix of a dropped column; return its name and rows.

    Both partitions have rows deleted by position and by key; the keys are in both, the deletes in one.
    """
    name = create(lake, version, "truncate(1, v)", **{_MERGING: "false"})
    for text in "abab":
        append(lake, name, 0, 20, text)
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 3")
    table = lake.table(name)
    keys = lake.sql("SELECT id, concat('a', id) v FROM range(10, 15)").coalesce(1)
    deletes = stage_equality_deletes(table, keys, ["id", "v"], 0)
    append_changes(table, RowChanges(deletes=deletes), PositionFence(None))
    lake.sql(f"ALTER TABLE lake.{name} DROP PARTITION FIELD truncate(1, v)")
    lake.sql(f"ALTER TABLE lake.{name} DROP COLUMN v")
    lake.sql(f"INSERT INTO lake.{name} SELECT id, 0 FROM range(100, 106, 1, 6)")
    lake.sql(f"ALTER TABLE lake.{name} UNSET TBLPROPERTIES ('{_MERGING}')")
    rows = spark_rows(lake, name)
    assert len(rows) == 4 * 19 - 2 * 5 + 6
    return name, rows


@V3
def test_compaction_moves_their_rows_to_the_current_spec(lake: Lake, version: int) -> None:
    name, rows = with_dropped_column(lake, version)
    report = run(lake, compact_data_files, name)
    assert (report.outcome, report.reason) == ("done", None)
    assert (report.metrics["files_of_dropped_columns"], report.metrics["files_left"]) == (4, 0)
    assert spark_rows(lake, name) == rows
    assert [file.spec_id for file in listed_files(lake, name, 0)] == [1, 1]
    # other writers cannot damage them any more, and their deletes apply to nothing
    lake.sql(f"INSERT INTO lake.{name} SELECT 200, 0")
    assert run(lake, rewrite_delete_files, name).outcome in ("done", "nothing")
    assert (count(lake, name, 1), count(lake, name, 2)) == (0, 0)
    read = lake.pyiceberg().load_table(name).scan().to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in read) == spark_rows(lake, name) == sorted([*rows, (200, 0)])
    again = run(lake, compact_data_files, name)
    assert (again.outcome, again.metrics["files_of_dropped_columns"]) == ("nothing", 0)


def test_one_cold_file_keeps_all_files_of_its_spec(lake: Lake) -> None:
    name, rows = with_dropped_column(lake, 2)
    lake.sql(f"ALTER TABLE lake.{name} CREATE TAG cold AS OF VERSION {snapshots(lake, name)[0]}")
    report = run(lake, compact_data_files, name, cold_tag="cold")
    assert report.outcome == "done" and "4 files of partition specs whose column was dropped stay" in str(report.reason)
    assert (report.metrics["cold_files_left"], report.metrics["files_left"]) == (1, 4)
    assert sorted(file.spec_id for file in listed_files(lake, name, 0)) == [0, 0, 0, 0, 1]
    assert spark_rows(lake, name) == rows


@V2
def test_files_too_large_for_one_commit_stay_untouched(lake: Lake, version: int) -> None:
    name, rows = with_dropped_column(lake, version)
    old = manifests_of_spec(lake, name, 0)
    with pytest.raises(UnsupportedError, match="Files of partition spec 0"):
        run(lake, rewrite_delete_files, name)
    report = run(lake, compact_data_files, name, max_group_bytes=4000)
    assert (report.outcome, report.metrics["files_left"]) == ("done", 4)
    assert "4 files of partition specs whose column was dropped" in str(report.reason)
    assert (manifests_of_spec(lake, name, 0), spark_rows(lake, name)) == (old, rows)
    assert run(lake, sort_data_files, name, columns=["id"], min_overlap_depth=1.0).metrics["files_left"] == 4
    assert run(lake, rewrite_manifests, name, min_manifests=1).outcome in ("done", "nothing")
    assert (manifests_of_spec(lake, name, 0), spark_rows(lake, name)) == (old, rows)
    assert _MERGING not in lake.table(name).properties


def test_ingestion_does_not_touch_their_manifests(lake: Lake) -> None:
    name, rows = with_dropped_column(lake, 2)
    old, table = manifests_of_spec(lake, name, 0), lake.table(name)
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('{_MERGING}'='true')")
    table.refresh()
    added = stage_rows(table, lake.sql("SELECT 300L AS id, 0 AS d").coalesce(1))
    append_changes(table, RowChanges(added), PositionFence(None))
    assert (manifests_of_spec(lake, name, 0), spark_rows(lake, name)) == (old, sorted([*rows, (300, 0)]))
    assert lake.table(name).properties[_MERGING] == "true"


@pytest.mark.soak
def test_expiry_is_refused_while_such_files_exist(lake: Lake) -> None:
    name, _ = with_dropped_column(lake, 2)
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN at date")
    table = lake.table(name)
    added = stage_rows(table, lake.sql("SELECT 300L AS id, 0 AS d, DATE'2020-01-01' AS at").coalesce(1))
    append_changes(table, RowChanges(added), PositionFence(None))
    old = manifests_of_spec(lake, name, 0)
    with pytest.raises(UnsupportedError, match="Run compact_data_files first"):
        run(lake, expire_partitions, name, time_column="at", older_than="2021-01-01", allow_row_deletes=True)
    assert manifests_of_spec(lake, name, 0) == old


def test_ingestion_by_key_is_refused_with_the_reason(lake: Lake) -> None:
    """A deleted key has no partition by a column that neither the table nor an event has."""
    name = create(lake, 2, "d, truncate(1, v)")
    for field, column in [("d", "d"), ("truncate(1, v)", None)]:
        lake.sql(f"ALTER TABLE lake.{name} DROP PARTITION FIELD {field}")
        if column:
            lake.sql(f"ALTER TABLE lake.{name} DROP COLUMN {column}")
    with pytest.raises(InputError, match=r"derives from \['dropped column 3', 'v'\].*compact_data_files"):
        check_partitioning(lake.table(name), ["id"], [0])


@pytest.mark.soak
def test_appends_of_other_writers_damage_such_tables(lake: Lake) -> None:
    """Without protection, any append restores rows deleted by key or makes the table unreadable."""
    name, rows = with_dropped_column(lake, 2)
    lake.sql(f"INSERT INTO lake.{name} SELECT 300, 0")
    with pytest.raises(Exception, match="Mismatched partition tuples"):
        spark_rows(lake, name)
