"""Compaction keeps every row, removes small files and deleted rows, and stops when there is nothing to gain."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakecdc.contract.errors import ConflictError, InputError, SpecError
from lakecdc.maintain import compact, selection
from lakecdc.maintain.compact import compact_data_files
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
from tests.versions import V2, V3


@pytest.mark.parametrize(("partitioned_by", "version"), on_demand([("", 2), ("d", 3)], in_ci=[("d", 3)]))
def test_small_files_become_one_per_partition(lake: Lake, version: int, partitioned_by: str) -> None:
    name = create(lake, version, partitioned_by)
    fill(lake, name)
    lake.sql(f"DELETE FROM lake.{name} WHERE id BETWEEN 100 AND 120")
    before = duckdb_rows(lake, name)
    assert count(lake, name, 1)
    report = run(lake, compact_data_files, name)
    assert report.outcome == "done", report.reason
    assert spark_rows(lake, name) == before == duckdb_rows(lake, name)
    assert count(lake, name, 0) == (2 if partitioned_by else 1)
    assert count(lake, name, 1) == 0
    assert report.metrics["delete_files_removed"] > 0
    assert report.metrics["rows"] == len(before)
    assert report.snapshot_after == str(head(lake, name))
    again = run(lake, compact_data_files, name)
    assert again.outcome == "nothing"
    assert "files below 0.75" in (again.reason or "")


@V3
def test_equality_deletes_are_applied(lake: Lake, version: int) -> None:
    name = create(lake, version, "d")
    fill(lake, name)
    delete_by_key(lake, name, range(0, 40))
    delete_by_key(lake, name, range(30, 60), "new")
    before = spark_rows(lake, name)
    assert len(before) == 500 - 30
    assert run(lake, compact_data_files, name).outcome == "done"
    assert spark_rows(lake, name) == before == duckdb_rows(lake, name)


@pytest.mark.parametrize("times", on_demand((1, 3), in_ci=(1,)))
def test_a_head_that_expires_during_planning_causes_a_new_plan(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    name, plan, left = create(lake, 2), selection.compaction_units, iter(range(times))
    fill(lake, name)

    def overtaken(*given: Any) -> Any:
        if next(left, None) is not None:
            delete_by_key(lake, name, [1])
            lake.sql(
                f"CALL lake.system.expire_snapshots(table => '{name}', "
                "older_than => TIMESTAMP '2099-01-01 00:00:00', retain_last => 1)"
            ).collect()
        return plan(*given)

    monkeypatch.setattr(compact, "compaction_units", overtaken)
    if times > 1:
        with pytest.raises(ConflictError, match="expired during"):
            run(lake, compact_data_files, name)
        return
    report = run(lake, compact_data_files, name)
    assert report.outcome == "done", report.reason
    assert count(lake, name, 0) == 1 and 1 not in {row[0] for row in duckdb_rows(lake, name)}


@V2
def test_a_table_without_snapshot_is_left_alone(lake: Lake, version: int) -> None:
    report = run(lake, compact_data_files, create(lake, version))
    assert (report.outcome, report.reason) == ("nothing", "the table has no snapshot")


def test_row_lineage_is_kept(lake: Lake) -> None:
    name = create(lake, 3, write__update__mode="merge-on-read")
    fill(lake, name)
    lake.sql(f"UPDATE lake.{name} SET v = 'updated' WHERE id < 20")
    lineage = f"SELECT id, _row_id, _last_updated_sequence_number FROM lake.{name} ORDER BY id"
    before = lake.sql(lineage).collect()
    assert len({row[2] for row in before}) == 6
    assert run(lake, compact_data_files, name).outcome == "done"
    assert lake.sql(lineage).collect() == before


def test_files_with_many_deleted_rows_are_rewritten_alone(lake: Lake) -> None:
    name = create(lake, 3)
    append_parts(lake, name, 0, 2000, 2)
    lake.sql(f"DELETE FROM lake.{name} WHERE id < 400 OR id = 1500")
    report = run(lake, compact_data_files, name, verify="off", verify_off_reason="only counted")
    assert report.outcome == "done"
    assert (report.metrics["dirty_files"], report.metrics["data_files_removed"]) == (1, 1)
    assert count(lake, name, 1) == 1
    assert len(duckdb_rows(lake, name)) == 1599


def test_a_file_without_live_rows_is_removed(lake: Lake) -> None:
    name = create(lake, 2)
    append_parts(lake, name, 0, 20, 2)
    delete_by_key(lake, name, range(10))
    lake.sql(f"DELETE FROM lake.{name} WHERE id IN (10, 11, 12, 13)")
    assert run(lake, compact_data_files, name, min_input_files=2).outcome == "done"
    assert [row[0] for row in duckdb_rows(lake, name)] == list(range(14, 20))


def test_a_table_without_live_rows_loses_all_files(lake: Lake) -> None:
    name = create(lake, 3)
    fill(lake, name)
    delete_by_key(lake, name, range(500))
    assert run(lake, compact_data_files, name).outcome == "done"
    assert duckdb_rows(lake, name) == [] and count(lake, name, 0) == 0


def test_output_files_follow_the_target_size(lake: Lake) -> None:
    name = create(lake, 2)
    # nullable values do not fit a required column
    columns = "coalesce(id % 20000, 0L) id", "uuid() v", "cast(id % 2 as int) d"
    lake.spark.range(0, 120_000, 1, 6).selectExpr(*columns).writeTo(f"lake.{name}").append()
    before, size = duckdb_rows(lake, name), data_bytes(lake, name)
    report = run(lake, compact_data_files, name, target_file_size_bytes=size // 3)
    assert report.outcome == "done"
    assert count(lake, name, 0) == 3
    assert duckdb_rows(lake, name) == before
    assert run(lake, compact_data_files, name, target_file_size_bytes=size // 3).outcome == "nothing"


def test_commits_are_bounded_by_bytes_and_time(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lakecdc.runtime.progress")
    name = create(lake, 3, "d")
    fill(lake, name)
    before, location, on_disk = duckdb_rows(lake, name), metadata_location(lake, name), files_on_disk(lake, name)
    planned = run(lake, compact_data_files, name, dry_run=True)
    assert planned.outcome == "nothing"
    assert planned.metrics["files_chosen"] == 10 and planned.metrics["files_planned"] == 2
    assert (metadata_location(lake, name), files_on_disk(lake, name)) == (location, on_disk)
    half = planned.metrics["bytes_chosen"] // 2 + 500
    report = run(lake, compact_data_files, name, max_group_bytes=half, max_runtime=0.001)
    assert report.outcome == "done" and report.metrics["commits"] == 1
    assert "of 2 groups are left" in (report.reason or "")
    assert run(lake, compact_data_files, name, max_group_bytes=half).metrics["commits"] == 1
    assert f"progress of {name}: 1 of 1 file groups, " in caplog.text
    assert duckdb_rows(lake, name) == before
    assert count(lake, name, 0) == 2


def test_sort_order_of_the_table_is_kept(lake: Lake) -> None:
    name = create(lake, 2)
    lake.sql(f"ALTER TABLE lake.{name} WRITE LOCALLY ORDERED BY v DESC NULLS LAST, bucket(4, id)")
    fill(lake, name)
    assert run(lake, compact_data_files, name).outcome == "done"
    values = [row.v for row in lake.sql(f"SELECT v, _pos FROM lake.{name} ORDER BY _pos").collect()]
    assert values == sorted(values, reverse=True)
    assert [file.sort_order_id for file in listed_files(lake, name)] == [1]


def test_another_branch_is_compacted(lake: Lake) -> None:
    name = create(lake, 3)
    fill(lake, name, files=2)
    lake.sql(f"ALTER TABLE lake.{name} CREATE BRANCH audit")
    lake.sql(f"INSERT INTO lake.{name}.branch_audit VALUES (1000, 'x', 0)")
    main, rows = head(lake, name), sorted(lake.duckdb_rows(name, ref="audit"))
    report = run(lake, compact_data_files, name, branch="audit", min_input_files=3)
    assert report.outcome == "done", report.reason
    assert head(lake, name) == main
    assert sorted(lake.duckdb_rows(name, ref="audit")) == rows and len(rows) == 201
    assert len(listed_files(lake, name, ref="audit")) == 1 and count(lake, name, 0) == 2
    with pytest.raises(InputError, match="does not exist"):
        run(lake, compact_data_files, name, branch="nowhere")


def test_partitions_that_are_being_written_are_left_alone(lake: Lake) -> None:
    name = create(lake, 2, "d")
    fill(lake, name)
    busy = run(lake, compact_data_files, name, quiet_seconds=3600)
    assert busy.outcome == "nothing" and busy.metrics["partitions_being_written"] == 2


def test_an_oversized_file_is_split_along_the_key(lake: Lake) -> None:
    name = create(lake, 2)
    lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS id")
    rows = lake.spark.range(40_000).selectExpr("id", "uuid() v", "cast(id % 2 as int) d")
    rows.coalesce(1).writeTo(f"lake.{name}").append()
    size = data_bytes(lake, name)
    report = run(lake, compact_data_files, name, target_file_size_bytes=size // 4)
    assert (report.outcome, report.metrics["large_files"]) == ("done", 1), report.reason
    ranges = bounds(lake, name, ["id"])
    assert len(ranges) >= 3 and all(left[1] < right[0] for left, right in pairwise(ranges))
    assert run(lake, compact_data_files, name, target_file_size_bytes=size // 4).outcome == "nothing"


@pytest.mark.parametrize("key", on_demand(("identifier", "sorted"), in_ci=("sorted",)))
def test_disjoint_files_stay_disjoint(lake: Lake, key: str) -> None:
    name = create(lake, 2)
    # with duplicate ids, a file could end with one row and the next file begin with the other
    rows = lake.spark.range(12_000).where("id % 100 > 0").selectExpr("id", "uuid() v", "cast(id % 2 as int) d")
    rows.repartitionByRange(12, "id").writeTo(f"lake.{name}").append()
    size = data_bytes(lake, name)
    if key == "identifier":
        lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS id")
    else:
        append(lake, name, 0, 12_000, step=100)
        report = run(lake, sort_data_files, name, columns=["id"], target_file_size_bytes=size // 12)
        assert report.outcome == "done", report.reason
    before = duckdb_rows(lake, name)
    report = run(lake, compact_data_files, name, target_file_size_bytes=size // 3)
    assert report.outcome == "done", report.reason
    ranges = bounds(lake, name, ["id"])
    assert report.metrics["files_planned"] == 3 and len(ranges) < 12
    assert report.metrics["files_in_sequence"] == (report.metrics["files_chosen"] if key == "sorted" else 0)
    rows = lake.sql(f"SELECT _file, id FROM lake.{name} ORDER BY _file, _pos").collect()
    assert all(left.id <= right.id for left, right in pairwise(rows) if left._file == right._file)
    assert all(left[1] < right[0] for left, right in pairwise(ranges))
    assert duckdb_rows(lake, name) == before


def test_rows_move_to_the_current_spec(lake: Lake) -> None:
    name = create(lake, 3)
    fill(lake, name)
    lake.sql(f"ALTER TABLE lake.{name} ADD PARTITION FIELD d")
    before = duckdb_rows(lake, name)
    assert run(lake, compact_data_files, name).outcome == "done"
    assert {file.spec_id for file in listed_files(lake, name)} == {1}
    assert spark_rows(lake, name) == before == duckdb_rows(lake, name)


def test_columns_of_every_type_are_kept(lake: Lake) -> None:
    columns = (
        "id bigint NOT NULL, b binary, f double, n decimal(20, 4), t timestamp, u timestamp_ntz, a array<int>, "
        "m map<string, int>, s struct<x: int, y: array<string>>, `odd.name` string, empty string"
    )
    name = create(lake, 3, columns=columns)
    values = (
        "id, cast(cast(id as string) as binary), id / 3, id / 7, timestamp_seconds(id), "
        "timestamp_ntz'2026-01-01', array(1, null), map('k', 1, 'a', cast(id as int)), "
        "named_struct('x', 1, 'y', null), if(id = 3, null, 'x'), null"
    )
    lake.sql(f"INSERT INTO lake.{name} SELECT {values} FROM range(0, 100, 1, 5)")
    assert count(lake, name, 0) == 5
    before = sorted(map(repr, lake.sql(f"SELECT * FROM lake.{name}").collect()))
    assert run(lake, compact_data_files, name).outcome == "done"
    assert sorted(map(repr, lake.sql(f"SELECT * FROM lake.{name}").collect())) == before


def test_partitions_with_odd_names_are_compacted(lake: Lake) -> None:
    name = create(lake, 3, "v")
    values = ["a b", "ä/%20+", "d=1", "", "null", None]
    for number in range(2):
        rows = lake.spark.createDataFrame([(number, v, 1) for v in values], "id bigint, v string, d int")
        rows.coalesce(1).writeTo(f"lake.{name}").append()
    report = run(lake, compact_data_files, name, min_input_files=2)
    assert report.outcome == "done", report.reason
    assert count(lake, name, 0) == len(values)
    assert sorted(map(repr, lake.duckdb_rows(name))) == sorted(repr((n, v, 1)) for n in range(2) for v in values)


def test_partitions_that_differ_by_a_microsecond_stay_apart(lake: Lake) -> None:
    name = create(lake, 2, "at", "id bigint NOT NULL, at timestamp")
    for number in range(2):
        rows = lake.sql(f"SELECT {number} * 2 + id id, timestamp_micros(id + 1) at FROM range(2)")
        rows.coalesce(1).writeTo(f"lake.{name}").append()
    before = spark_rows(lake, name)
    report = run(lake, compact_data_files, name, min_input_files=2)
    assert report.outcome == "done" and "several partitions" in report.metrics["by_iceberg"], report
    assert spark_rows(lake, name) == before and count(lake, name, 0) == 2


@pytest.mark.soak
def test_position_deletes_of_a_partition_stay_while_needed(lake: Lake) -> None:
    name = create(lake, 2, "d", **{"write.delete.granularity": "partition"})
    fill(lake, name)
    rows = lake.spark.range(2_000, 60_000).selectExpr("id", "uuid() v", "cast(id % 2 as int) d")
    rows.coalesce(1).writeTo(f"lake.{name}").append()
    lake.sql(f"DELETE FROM lake.{name} WHERE id % 50 = 7")
    before, size = duckdb_rows(lake, name), max(file.file_size_in_bytes for file in listed_files(lake, name))
    report = run(lake, compact_data_files, name, target_file_size_bytes=size)
    assert report.outcome == "done" and report.metrics["data_files_removed"] == 10
    assert count(lake, name, 1) == 1
    assert spark_rows(lake, name) == before == duckdb_rows(lake, name)


@pytest.mark.parametrize(
    ("version", "moment"),
    on_demand([(2, "rewrite_staged"), (3, "rewrite_before_commit")], in_ci=[(3, "rewrite_before_commit")]),
)
def test_a_concurrent_position_delete_is_a_conflict(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int, moment: str
) -> None:
    name = create(lake, version)
    fill(lake, name)
    meanwhile(monkeypatch, moment, lambda: lake.sql(f"DELETE FROM lake.{name} WHERE id = 5"))
    report = run(lake, compact_data_files, name)
    assert (report.outcome, report.failure_class) == ("conflict", "conflict")
    assert len(duckdb_rows(lake, name)) == 499
    assert files_on_disk(lake, name) - live_files(lake, name) == set()
    assert not [tag for tag in dict(lake.table(name).java.refs()) if tag != "main"]
    assert run(lake, compact_data_files, name).outcome == "done"
    assert len(duckdb_rows(lake, name)) == 499


def test_tampered_output_is_not_published(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2, **{"write.parquet.compression-codec": "uncompressed"})
    fill(lake, name)
    before, known = head(lake, name), files_on_disk(lake, name)

    def tamper() -> None:
        (written,) = (Path(file.removeprefix("file:")) for file in files_on_disk(lake, name) - known)
        content = written.read_bytes()
        assert content.count(b"old77") == 1
        written.write_bytes(content.replace(b"old77", b"old7x"))

    meanwhile(monkeypatch, "rewrite_staged", tamper)
    report = run(lake, compact_data_files, name)
    assert report.outcome == "failed" and "with other values" in (report.reason or "")
    assert head(lake, name) == before
    assert files_on_disk(lake, name) == known


def test_sampled_and_missing_proofs_are_reported(lake: Lake) -> None:
    name = create(lake, 2)
    fill(lake, name)
    with pytest.raises(SpecError, match="without a reason"):
        run(lake, compact_data_files, name, verify="off")
    report = run(lake, compact_data_files, name, verify="sample", dry_run=False)
    assert report.metrics["verified"] == "all rows, 1 of 3 columns: id"
    fill(lake, name)
    report = run(lake, compact_data_files, name, verify="off", verify_off_reason="a scratch table")
    assert report.metrics["verified"] == "nothing: a scratch table"
    assert len(duckdb_rows(lake, name)) == 1000


def unfiltered(lake: Lake, name: str) -> set[str]:
    """Return the columns for which a data file has values but no Bloom filter."""
    columns = set()
    for location in live_files(lake, name):
        metadata = pq.ParquetFile(location.removeprefix("file:")).metadata
        chunks = [metadata.row_group(g).column(c) for g in range(metadata.num_row_groups) for c in range(3)]
        columns |= {c.path_in_schema for c in chunks if c.bloom_filter_offset is None}
    return columns


def test_bloom_filters_are_written_and_added_on_request(lake: Lake) -> None:
    name = create(lake, 3)
    fill(lake, name, rows=400)
    before, size = duckdb_rows(lake, name), data_bytes(lake, name)
    options: dict[str, Any] = {"target_file_size_bytes": size // 5, "small_file_ratio": 0.1}
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('{names.BLOOM_FILTER_COLUMNS}' = 'v, d, id')")
    assert run(lake, compact_data_files, name, **options).outcome == "nothing"
    report = run(lake, compact_data_files, name, add_bloom_filters=True, **options)
    assert (report.outcome, report.metrics["unfiltered_files"]) == ("done", 5), report.reason
    assert not unfiltered(lake, name)
    assert duckdb_rows(lake, name) == before
    again = run(lake, compact_data_files, name, add_bloom_filters=True, **options)
    assert (again.outcome, again.metrics["unfiltered_files"]) == ("nothing", 0)
    assert not [key for key in lake.table(name).properties if key.startswith("write.parquet.bloom")]
    for column in ("nowhere", "id, v.x"):
        lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('{names.BLOOM_FILTER_COLUMNS}' = '{column}')")
        with pytest.raises(InputError, match="Cannot write a Bloom filter"):
            run(lake, compact_data_files, name)
