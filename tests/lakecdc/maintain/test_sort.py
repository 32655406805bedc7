"""Sorting makes disjoint files of the same rows, and only once."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.rewriting import in_tasks
from lakecdc.maintain.sort import sort_data_files
from lakecdc.metadata import names
from tests.conftest import Lake
from tests.lakecdc.maintain.support import (
    append,
    append_parts,
    bounds,
    count,
    create,
    data_bytes,
    delete_by_key,
    duckdb_rows,
    files_on_disk,
    fill,
    head,
    listed_files,
    live_files,
    meanwhile,
    metadata_location,
    run,
    spark_rows,
)
from tests.on_demand import on_demand
from tests.versions import V3


@V3
def test_overlapping_files_become_disjoint(lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    # each writing task reads the files, or their rows are shuffled
    monkeypatch.setattr(in_tasks, "MOST_READERS", {2: 4, 3: 0}[version])
    name = create(lake, version)
    fill(lake, name, rows=1000)
    delete_by_key(lake, name, range(40), "new")
    lake.sql(f"DELETE FROM lake.{name} WHERE id % 100 = 77")
    before = duckdb_rows(lake, name)
    options = {"columns": ["id"], "target_file_size_bytes": data_bytes(lake, name) // 4}
    dry = run(lake, sort_data_files, name, dry_run=True, **options)
    assert dry.metrics["overlap_depth_before"] > 4 and head(lake, name) == int(dry.snapshot_before or 0)
    report = run(lake, sort_data_files, name, **options)
    assert report.outcome == "done", report.reason
    assert report.metrics["overlap_depth_after"] == 1.0
    assert report.metrics["sorted_by"] == "id"
    ranges = bounds(lake, name, ["id"])
    assert len(ranges) > 1 and all(left[1] < right[0] for left, right in pairwise(ranges))
    assert spark_rows(lake, name) == before == duckdb_rows(lake, name)
    assert count(lake, name, 1) == 0
    again = run(lake, sort_data_files, name, **options)
    assert again.outcome == "nothing" and again.metrics["overlap_depth_before"] == 1.0


def test_the_tables_order_is_used_and_recorded(lake: Lake) -> None:
    name = create(lake, 3, "d")
    lake.sql(f"ALTER TABLE lake.{name} WRITE ORDERED BY v DESC, id")
    fill(lake, name)
    lineage = f"SELECT id, _row_id, _last_updated_sequence_number FROM lake.{name} ORDER BY id"
    before = lake.sql(lineage).collect()
    report = run(lake, sort_data_files, name)
    assert report.outcome == "done" and report.metrics["partitions_chosen"] == 2
    assert report.metrics["sorted_by"] == "v desc, id"
    assert lake.sql(lineage).collect() == before
    rows = lake.sql(f"SELECT v, d FROM lake.{name} ORDER BY _file, _pos").collect()
    for d in (0, 1):
        values = [row.v for row in rows if row.d == d]
        assert len(values) == 250 and values == sorted(values, reverse=True)
    assert {file.sort_order_id for file in listed_files(lake, name)} == {1}
    snapshot = lake.table(name).head()
    assert snapshot is not None and snapshot.summary[names.JOB] == "sort_data_files"


@pytest.mark.soak
def test_the_second_column_is_also_sorted(lake: Lake) -> None:
    name = create(lake, 2)
    lake.sql(f"ALTER TABLE lake.{name} WRITE LOCALLY ORDERED BY truncate(1000, d), id")
    for number in range(6):
        values = f"id * 3 + {number % 3}", "uuid()", f"cast({number // 3} * 1000 + id % 7 as int)"
        rows = lake.spark.range(300).selectExpr(*values).toDF("id", "v", "d")
        rows.coalesce(1).writeTo(f"lake.{name}").append()
    before = duckdb_rows(lake, name)
    size = data_bytes(lake, name)
    report = run(lake, sort_data_files, name, target_file_size_bytes=size // 6)
    assert report.outcome == "done" and report.metrics["overlap_depth_before"] > 2, report.metrics
    assert report.metrics["overlap_depth_after"] == 1.0
    assert all(left[3] < right[2] or left[1] < right[0] for left, right in pairwise(bounds(lake, name, ["d", "id"])))
    assert spark_rows(lake, name) == before == duckdb_rows(lake, name)
    assert run(lake, sort_data_files, name, target_file_size_bytes=size // 6).outcome == "nothing"


def files_opened(lake: Lake, name: str, column: str, value: object) -> int:
    """Count the data files that pyiceberg plans to read for a value of a column."""
    table = lake.pyiceberg().load_table(name)
    return len(list(table.scan(row_filter=f"{column} = {value!r}").plan_files()))


# test_curves checks both curves point by point
@pytest.mark.parametrize("curve", on_demand(("hilbert", "zorder"), in_ci=("hilbert",)))
def test_files_along_a_curve_answer_look_ups_by_either_column(lake: Lake, curve: str) -> None:
    name = create(lake, 2, columns="id bigint, v string, at timestamp")
    rows = lake.spark.range(3200).selectExpr(
        "if(id % 100 = 7, null, id) id", "concat('order-', md5(cast(id as string))) v", "timestamp_seconds(id) at"
    )
    rows.repartition(16).writeTo(f"lake.{name}").append()
    look_ups = [("id", 1000), ("id", 3100), ("v", rows.collect()[500].v)]
    before, opened = duckdb_rows(lake, name, "v"), [files_opened(lake, name, *w) for w in look_ups]
    assert opened == [16] * 3
    size = data_bytes(lake, name)
    options = {"target_file_size_bytes": size // 16}
    report = run(lake, sort_data_files, name, columns=["id", "v"], curve=curve, **options)
    assert report.outcome == "done" and report.metrics["sorted_by"] == f"{curve}(id, v)", report.reason
    assert report.metrics["overlap_depth_before"] > 2.5 and report.metrics["overlap_depth_after"] < 1.5
    assert max(files_opened(lake, name, *w) for w in look_ups) <= 9
    assert sum(files_opened(lake, name, *w) for w in look_ups) <= 18
    again = run(lake, sort_data_files, name, **options)
    assert (again.outcome, again.metrics["sorted_by"]) == ("nothing", f"{curve}(id, v)")
    opened = [files_opened(lake, name, *w) for w in look_ups]
    # the ids of each file span the whole range
    late = "5000 + id % 20 * 5 + id div 20", "concat('order-', md5(cast(-id as string)))", "now()"
    lake.spark.range(0, 100, 1, 5).selectExpr(*late).toDF("id", "v", "at").writeTo(f"lake.{name}").append()
    assert run(lake, compact_data_files, name, small_file_ratio=0.3, **options).metrics["data_files_removed"] == 5
    assert all(files_opened(lake, name, *w) <= o + 1 for w, o in zip(look_ups, opened, strict=True))
    assert run(lake, sort_data_files, name, dry_run=True).metrics["sorted_by"] == f"{curve}(id, v)"
    after = duckdb_rows(lake, name, "v")
    assert len(after) == 3300 and set(before) < set(after)


def test_identifier_fields_are_the_default_order(lake: Lake) -> None:
    name = create(lake, 2)
    fill(lake, name)
    report = run(lake, sort_data_files, name)
    assert report.outcome == "nothing" and "neither a sort order nor identifier fields" in (report.reason or "")
    with pytest.raises(InputError, match="column does not exist"):
        run(lake, sort_data_files, name, columns=["nowhere"])
    lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS id")
    assert run(lake, sort_data_files, name).metrics["sorted_by"] == "id"


def test_tables_with_one_file_or_no_snapshot_are_left_alone(lake: Lake) -> None:
    name = create(lake, 2)
    assert run(lake, sort_data_files, name, columns=["id"]).reason == "the table has no snapshot"
    append(lake, name, 0, 10)
    location = metadata_location(lake, name)
    report = run(lake, sort_data_files, name, columns=["id"])
    assert report.outcome == "nothing" and "overlap deeper than 1.5" in (report.reason or "")
    assert metadata_location(lake, name) == location


@pytest.mark.soak
def test_truncated_bounds_do_not_cause_endless_sorting(lake: Lake) -> None:
    prefix = "x" * 40
    name = create(lake, 2)
    rows = lake.spark.range(0, 600, 1, 3).selectExpr("id", f"concat('{prefix}', uuid()) v", "cast(id as int) d")
    rows.writeTo(f"lake.{name}").append()
    size = data_bytes(lake, name)
    options = {"columns": ["v"], "target_file_size_bytes": size // 3}
    assert run(lake, sort_data_files, name, **options).outcome == "done"
    assert count(lake, name, 0) > 1
    assert run(lake, sort_data_files, name, **options).outcome == "nothing"
    append(lake, name, 0, 100, prefix)
    assert run(lake, sort_data_files, name, **options).outcome == "done"


def test_a_concurrent_position_delete_is_a_conflict(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 3)
    fill(lake, name)
    meanwhile(monkeypatch, "rewrite_before_commit", lambda: lake.sql(f"DELETE FROM lake.{name} WHERE id = 5"))
    assert run(lake, sort_data_files, name, columns=["id"]).outcome == "conflict"
    assert len(duckdb_rows(lake, name)) == 499
    assert files_on_disk(lake, name) <= live_files(lake, name)


@pytest.mark.soak
def test_bytes_and_moments_can_be_sorted_by(lake: Lake) -> None:
    name = create(lake, 2, columns="b binary, t timestamp")
    lake.sql(f"ALTER TABLE lake.{name} WRITE ORDERED BY b")
    for number in range(3):
        values = f"cast(cast(id * 3 + {number} as string) as binary), timestamp_seconds(id * 3 + {number})"
        lake.sql(f"INSERT INTO lake.{name} SELECT {values} FROM range(5000)")
    before = lake.sql(f"SELECT * FROM lake.{name} ORDER BY t").collect()
    for column in ("b", "t"):
        size = data_bytes(lake, name)
        options = {"columns": [column], "target_file_size_bytes": size // 3}
        report = run(lake, sort_data_files, name, **options)
        assert report.outcome == "done", (column, report.metrics)
        assert report.metrics["overlap_depth_after"] == 1.0
        assert run(lake, sort_data_files, name, **options).outcome == "nothing"
    assert lake.sql(f"SELECT * FROM lake.{name} ORDER BY t").collect() == before


def test_the_recorded_order_outlives_expiry_and_renaming(lake: Lake) -> None:
    name = create(lake, 2, columns="id bigint NOT NULL, v string, d int")
    lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS id")
    append_parts(lake, name, 0, 600, 3, "x" * 40)
    size = data_bytes(lake, name)
    options = {"target_file_size_bytes": size // 3}
    assert run(lake, sort_data_files, name, columns=["v"], **options).outcome == "done"
    delete_by_key(lake, name, [1])
    lake.sql(
        f"CALL lake.system.expire_snapshots(table => '{name}', "
        "older_than => TIMESTAMP '2099-01-01 00:00:00', retain_last => 1)"
    ).collect()
    lake.sql(f"ALTER TABLE lake.{name} RENAME COLUMN v TO w")
    again = run(lake, sort_data_files, name, **options)
    assert (again.outcome, again.metrics["sorted_by"]) == ("nothing", "w")
    lake.sql(f"ALTER TABLE lake.{name} WRITE ORDERED BY d")
    assert run(lake, sort_data_files, name, dry_run=True, **options).metrics["sorted_by"] == "d"


def test_groups_too_large_for_a_commit_are_sorted_in_pieces(lake: Lake) -> None:
    name = create(lake, 3)
    fill(lake, name, files=9, rows=1000)
    before = duckdb_rows(lake, name)
    size = data_bytes(lake, name)
    options = {"columns": ["id"], "target_file_size_bytes": size // 9, "max_group_bytes": size // 3 + 2000}
    report = run(lake, sort_data_files, name, min_overlap_depth=1.2, **options)
    assert report.outcome == "done", report.reason
    assert report.metrics["overlap_depth_before"] > 5 and report.metrics["overlap_depth_after"] <= 2.5
    assert report.metrics["passes"] > 1 and report.metrics["times_written"] > 1
    assert report.metrics["commits"] >= 4
    assert spark_rows(lake, name) == before == duckdb_rows(lake, name)
    assert run(lake, sort_data_files, name, min_overlap_depth=1.2, **options).outcome == "nothing"
