"""The number of buckets follows the size of a table, and no row is lost or duplicated."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import SpecError, UnsupportedError
from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import RebucketOptions
from lakecdc.iceberg.lease import LeaseHeldError
from lakecdc.iceberg.refs import read_refs
from lakecdc.iceberg.table import IcebergTable
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.rebucket import rebucket, suitable_buckets
from lakecdc.maintain.start_tag import start_tag
from lakecdc.metadata import lease as length
from lakecdc.metadata.lease import Lease, read_lease
from lakecdc.metadata.names import LEASE, LEASE_TAG, LEASE_TAKEN_PREFIX
from lakecdc.runtime import failpoints
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import final_rows
from tests.lakecdc.ingest.killing import Run
from tests.lakecdc.maintain.fed import Fed, commit_foreign_deletes
from tests.lakecdc.maintain.support import append, append_parts, create, duckdb_rows, metadata_location, run, spark_rows
from tests.versions import V2, V3


def test_the_number_of_buckets_doubles_and_halves() -> None:
    options = RebucketOptions(min_buckets=2, max_buckets=64)

    def suitable(now: int, each: float) -> int:
        return suitable_buckets(now, now * each, options, 100)

    assert [suitable(8, each) for each in (34, 50, 100, 150)] == [8] * 4
    assert [suitable(8, each) for each in (151, 200, 201, 799, 10_000)] == [16, 16, 32, 64, 64]
    assert [suitable(8, each) for each in (33, 25, 13, 1)] == [4, 4, 2, 2]
    assert (suitable(6, 1), suitable(3, 1), suitable(48, 1000), suitable(128, 1000)) == (3, 3, 48, 128)


def test_a_second_run_does_nothing() -> None:
    options, rng = RebucketOptions(max_buckets=2**20), random.Random(5)
    for _ in range(10_000):
        bytes_ = 10 ** rng.uniform(0, 9)
        now = 2 ** rng.randrange(10)
        once = suitable_buckets(now, bytes_, options, 1000)
        # the size of rewritten rows differs slightly
        change = rng.uniform(0.7, 1.4) if once not in (now, 1) else 1
        assert suitable_buckets(once, bytes_ * change, options, 1000) == once


@pytest.mark.parametrize(
    "options",
    [{"tolerance": 0.5}, {"min_buckets": 0}, {"min_buckets": 8, "max_buckets": 4}, {"target_bucket_bytes": -1}],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=next(iter(options))):
        RebucketOptions(**options)


def target_for(lake: Lake, name: str, buckets: int) -> int:
    """Return a target size with which the table's rows fill this number of buckets."""
    measured = run(lake, rebucket, name, dry_run=True).metrics
    return round(measured["bucket_bytes_before"] * measured["buckets_before"] / buckets * 1.1)


def buckets_of(lake: Lake, name: str) -> Counter[int]:
    """Count the live data files by the number of buckets of their spec."""
    table = lake.pyiceberg().load_table(name)
    fields = {number: str(spec.fields[-1].transform) for number, spec in table.specs().items()}
    return Counter(int(fields[task.file.spec_id][7:-1]) for task in table.scan().plan_files())


def end_lease(table: IcebergTable) -> Lease:
    """End the lease of a killed run and return it."""
    lease = read_lease(table.properties)
    assert lease is not None and LEASE_TAG in read_refs(table)
    table.java.updateProperties().set(LEASE, dataclasses.replace(lease, until_ms=0).encode()).commit()
    return lease


def test_buckets_change_only_under_the_lease(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length, "SECONDS", 1.5)
    name = create(lake, 2, "bucket(2, id)")
    append(lake, name, 0, 1000)
    target, before = target_for(lake, name, 4), lake.pyiceberg().load_table(name).spec()
    table = lake.table(name)
    start = table.head()
    assert start is not None
    with start_tag(table, start, "sort_data_files"), pytest.raises(LeaseHeldError, match="held by sort_data_files in"):
        run(lake, rebucket, name, target_bucket_bytes=target)
    assert lake.pyiceberg().load_table(name).spec() == before
    seen: dict[str, bool] = {}
    monkeypatch.setattr(failpoints, "reach", lambda at: seen.update({at: LEASE_TAG in read_refs(lake.table(name))}))
    assert run(lake, rebucket, name, target_bucket_bytes=target).outcome == "done"
    assert seen["rebucket_changed"] and seen["rewrite_before_commit"]
    assert set(read_refs(lake.table(name))) == {"main"}


@V3
def test_buckets_grow_and_shrink(lake: Lake, version: int) -> None:
    name = create(lake, version, "d, bucket(2, id)")
    append_parts(lake, name, 0, 4000, 4)
    rows, target, before = duckdb_rows(lake, name), target_for(lake, name, 8), metadata_location(lake, name)
    dry = run(lake, rebucket, name, target_bucket_bytes=target, dry_run=True)
    assert (dry.outcome, metadata_location(lake, name)) == ("nothing", before)
    assert (dry.metrics["buckets_after"], dry.metrics["files_chosen"], dry.metrics["files_planned"]) == (8, 16, 16)
    grown = run(lake, rebucket, name, target_bucket_bytes=target)
    assert (grown.outcome, grown.reason) == ("done", None)
    expected = {"buckets_before": 2, "buckets_after": 8, "data_files_removed": 16, "data_files_added": 16, "commits": 1}
    assert {key: grown.metrics[key] for key in expected} == expected
    assert buckets_of(lake, name) == {8: 16}
    assert duckdb_rows(lake, name) == rows
    again = run(lake, rebucket, name, target_bucket_bytes=target)
    assert again.outcome == "nothing" and again.reason == (
        f"8 buckets have {again.metrics['bucket_bytes_before']} bytes on average, the target is {target}"
    )
    shrunk = run(lake, rebucket, name, target_bucket_bytes=8 * target, min_buckets=4)
    assert (shrunk.outcome, shrunk.metrics["buckets_after"], buckets_of(lake, name)) == ("done", 4, {4: 8})
    assert spark_rows(lake, name) == rows == duckdb_rows(lake, name)


@V2
def test_the_next_run_moves_the_rest_of_a_failed_one(lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    name = create(lake, version, "bucket(4, id)")
    append(lake, name, 0, 2000)
    rows, moments = duckdb_rows(lake, name), Counter[str]()

    def reach(name: str) -> None:
        moments[name] += 1
        if name == "rewrite_before_commit" and moments[name] == 2:
            raise OSError("the power is gone")

    target = target_for(lake, name, 8)
    monkeypatch.setattr(failpoints, "reach", reach)
    report = run(lake, rebucket, name, target_bucket_bytes=target, max_group_bytes=1)
    assert (report.outcome, report.metrics["commits"], report.metrics["buckets_after"]) == ("failed", 1, 8)
    assert buckets_of(lake, name) == {4: 3, 8: 2} and duckdb_rows(lake, name) == rows
    report = run(lake, rebucket, name, target_bucket_bytes=target, max_group_bytes=1)
    assert (report.outcome, report.metrics["commits"], report.metrics["buckets_before"]) == ("done", 3, 8)
    assert buckets_of(lake, name) == {8: 8} and moments["rebucket_changed"] == 1
    assert spark_rows(lake, name) == rows == duckdb_rows(lake, name)


@pytest.mark.parametrize(
    ("moment", "left"),
    [
        ("rewrite_before_commit@2", {4: 3, 8: 2}),
        pytest.param("rebucket_changed", {4: 4}, marks=pytest.mark.soak),
        pytest.param("rewrite_staged@3", {4: 2, 8: 4}, marks=pytest.mark.soak),
    ],
)
def test_the_next_run_continues_after_a_kill_between_commits(
    lake: Lake, tmp_path: Path, moment: str, left: dict[int, int]
) -> None:
    name = create(lake, 2, "bucket(4, id)")
    append(lake, name, 0, 2000)
    rows, options = duckdb_rows(lake, name), {"target_bucket_bytes": target_for(lake, name, 8), "max_group_bytes": 1}
    spec = lake.spec("rebucket", name, options=options)
    assert Run(tmp_path, spec, f"{moment}=kill").was_killed()
    # the session caches tables for a while
    lake.sql(f"REFRESH TABLE lake.{name}")
    assert buckets_of(lake, name) == left and duckdb_rows(lake, name) == rows
    dead = end_lease(lake.table(name))
    report = run(lake, rebucket, name, **options)
    assert dead.holder.startswith("rebucket in") and f"{LEASE_TAKEN_PREFIX}{dead.token}" in read_refs(lake.table(name))
    assert (report.outcome, report.metrics["buckets_before"], report.metrics["commits"]) == ("done", 8, left[4])
    assert buckets_of(lake, name) == {8: 8} and spark_rows(lake, name) == rows == duckdb_rows(lake, name)
    assert run(lake, rebucket, name, **options).outcome == "nothing"


def test_unsuitable_tables_are_left_alone(lake: Lake) -> None:
    assert run(lake, rebucket, create(lake, 2, "bucket(2, id)")).reason == "the table has no snapshot"
    for partitions, why in (("d", "not partitioned by bucket"), ("bucket(2, id), bucket(3, d)", "several buckets")):
        name = create(lake, 2, partitions)
        append(lake, name, 0, 10)
        report = run(lake, rebucket, name)
        assert report.outcome == "nothing" and why in str(report.reason)
    name = create(lake, 2, "bucket(2, id)")
    append(lake, name, 0, 100)
    commit_foreign_deletes(lake, name)
    before = metadata_location(lake, name)
    for dry_run in (True, False):
        with pytest.raises(UnsupportedError, match="Cannot move rows to other buckets: snapshot .* another writer"):
            run(lake, rebucket, name, target_bucket_bytes=1, dry_run=dry_run)
    assert metadata_location(lake, name) == before
    assert run(lake, rebucket, name, target_bucket_bytes=10**6, min_buckets=2).outcome == "nothing"


@V2
def test_batches_before_the_commits_are_kept(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    fed = Fed(lake, tmp_path, version)
    target, batches = target_for(lake, fed.name, 4), list[TableReport]()

    def reach(name: str) -> None:
        if name in ("rebucket_changed", "rewrite_before_commit") and len(batches) < 2:
            batches.append(fed.ingest())

    monkeypatch.setattr(failpoints, "reach", reach)
    report = run(lake, rebucket, fed.name, target_bucket_bytes=target, max_group_bytes=1)
    assert (report.outcome, report.reason) == ("done", None)
    assert report.metrics["buckets_after"] == 4 and report.metrics["commits"] >= len(batches) == 2
    fed.check()
    assert fed.specs() == {1}
    run(lake, rewrite_delete_files, fed.name)
    assert fed.feed.rows() == final_rows(fed.history)
