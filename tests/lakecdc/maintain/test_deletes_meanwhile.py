"""Rows deleted during a rewrite of their files stay deleted, and the rewrite does not restart."""

from __future__ import annotations

import random
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from lakecdc.key_search.carry_over import carry_over
from lakecdc.maintain import rewrite
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files import job as delete_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.sort import sort_data_files
from lakecdc.runtime import failpoints
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed, PlainHistory, final_rows
from tests.lakecdc.maintain.support import meanwhile, run
from tests.on_demand import on_demand
from tests.versions import V2

WORK: dict[str, tuple[Any, dict[str, Any]]] = {
    "compaction": (compact_data_files, {"min_input_files": 2}),
    "sort": (sort_data_files, {"columns": ["n"], "min_overlap_depth": 1}),
}


class Fed:
    """A table whose deletes are resolved, and the history of its source.

    :param batches: number of ingested batches, about 20 changes each.
    """

    def __init__(self, lake: Lake, folder: Path, version: int, batches: int = 3, **target: Any) -> None:
        self.feed = Feed(lake, folder, {"deletes": "resolved", "format_version": version} | target)
        self.history = PlainHistory.of(3, 0)
        assert isinstance(self.history, PlainHistory)
        for _ in range(batches):
            self.batch()

    def batch(self) -> None:
        """Ingest changes of random keys."""
        begun = len(self.history.events)
        for _ in range(20):
            self.history.statement(30)
        self.feed.take(self.history.events[begun:])

    def check(self) -> None:
        """Check that two readers see the source's rows."""
        assert self.feed.rows() == final_rows(self.history)
        rows = self.feed.lake.pyiceberg().load_table(self.feed.table).scan().to_arrow().to_pylist()
        values = [(row["id"], row["name"], row["n"], row["doc"]) for row in rows]
        assert sorted(values, key=str) == final_rows(self.history)


@pytest.mark.parametrize("work", on_demand(list(WORK), in_ci=("compaction",)))
@V2
def test_a_batch_before_the_commit_is_carried_over(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, work: str
) -> None:
    fed = Fed(lake, tmp_path, version)
    meanwhile(monkeypatch, "rewrite_before_commit", fed.batch)
    job, options = WORK[work]
    report = run(lake, job, fed.feed.table, **options)
    assert report.outcome == "done", report.reason
    assert report.metrics["rows_deleted_meanwhile"] > 0
    fed.check()
    fed.batch()
    fed.check()


def test_rows_that_move_to_other_partitions_stay_deleted(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = Fed(lake, tmp_path, 3, partition_by=["bucket(2, id)"])
    lake.sql(f"ALTER TABLE lake.{fed.feed.table} REPLACE PARTITION FIELD id_bucket WITH bucket(3, id)")
    meanwhile(monkeypatch, "rewrite_before_commit", fed.batch)
    report = run(lake, compact_data_files, fed.feed.table, min_input_files=1, older_specs=True)
    assert report.outcome == "done", report.reason
    fed.check()


@V2
def test_batches_that_keep_arriving_are_carried_over_in_turn(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    fed, carried, real = Fed(lake, tmp_path, version), list[int](), carry_over

    def counted(*arguments: Any) -> Any:
        carry = real(*arguments)
        carried.append(carry.rows)
        if len(carried) < 3:
            fed.batch()
        return carry

    monkeypatch.setattr(rewrite, "carry_over", counted)
    meanwhile(monkeypatch, "rewrite_before_commit", fed.batch)
    report = run(lake, compact_data_files, fed.feed.table, min_input_files=2)
    assert report.outcome == "done", report.reason
    assert len(carried) == 3 and 0 < carried[0] < carried[2] == report.metrics["rows_deleted_meanwhile"]
    fed.check()


def test_a_deleted_key_of_two_rows_is_a_conflict(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is unknown which of the new rows is deleted."""
    fed = Fed(lake, tmp_path, 2)
    key, name = next(iter(fed.history.rows)), fed.feed.table
    lake.sql(f"INSERT INTO lake.{name} (id, name) SELECT {key}, 'twin'")
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    before = fed.feed.rows()

    def delete_twin() -> None:
        lake.sql(f"DELETE FROM lake.{name} WHERE name = 'twin'")

    meanwhile(monkeypatch, "rewrite_before_commit", delete_twin)
    report = run(lake, compact_data_files, name, min_input_files=2)
    assert report.outcome == "conflict" and "1 rows were deleted during the rewrite, and 2 rows" in str(report.reason)
    assert fed.feed.rows() == [row for row in before if row[1] != "twin"]


def test_a_file_removed_by_others_is_a_conflict(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Fed(lake, tmp_path, 2)
    meanwhile(monkeypatch, "rewrite_before_commit", lambda: lake.sql(f"DELETE FROM lake.{fed.feed.table}"))
    assert run(lake, compact_data_files, fed.feed.table, min_input_files=2).outcome == "conflict"
    assert fed.feed.rows() == []


def test_a_concurrent_conversion_is_a_conflict(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It deletes by position rows that the rewrite did not read because an equality delete had deleted them."""
    fed = Fed(lake, tmp_path, 2, deletes="equality")

    def convert() -> None:
        # like another engine, without a lease
        monkeypatch.setattr(delete_files, "start_tag", lambda *_: nullcontext())
        assert run(lake, rewrite_delete_files, fed.feed.table).outcome == "done"

    meanwhile(monkeypatch, "rewrite_before_commit", convert)
    report = run(lake, compact_data_files, fed.feed.table, min_input_files=2)
    assert report.outcome == "conflict" and "equality deletes" in str(report.reason)
    fed.check()


def test_a_concurrent_rollback_is_a_conflict(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Fed(lake, tmp_path, 3)
    rows, before = fed.feed.rows(), lake.table(fed.feed.table).head()
    assert before is not None
    fed.batch()
    rollback = f"CALL lake.system.rollback_to_snapshot('{fed.feed.table}', {before.id})"
    meanwhile(monkeypatch, "rewrite_before_commit", lambda: lake.sql(rollback))
    assert run(lake, compact_data_files, fed.feed.table, min_input_files=2).outcome == "conflict"
    assert fed.feed.rows() == rows


@pytest.mark.soak
@V2
def test_a_writer_and_rewrites_both_make_progress(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Each rewrite takes as long as several batches; random keys are in all of its files."""
    seconds, interval = 120.0, 6.0
    fed, reached = Fed(lake, tmp_path, version), failpoints.reach

    def reach(moment: str) -> None:
        if moment == "rewrite_before_commit":
            time.sleep(3 * interval)
        reached(moment)

    monkeypatch.setattr(failpoints, "reach", reach)
    end, outcomes = time.monotonic() + seconds, list[str]()

    def rewrites() -> None:
        rng = random.Random(1)
        while time.monotonic() < end:
            job, options = WORK[rng.choice(list(WORK))]
            outcomes.append(run(lake, job, fed.feed.table, **options).outcome)

    thread, batches = threading.Thread(target=rewrites), 0
    thread.start()
    while time.monotonic() < end:
        began = time.monotonic()
        fed.batch()
        batches += 1
        time.sleep(max(0.0, interval - (time.monotonic() - began)))
    thread.join()
    fed.check()
    assert batches >= 0.8 * seconds / interval
    # a rewrite of sorted files has nothing to do
    assert set(outcomes) <= {"done", "nothing"} and outcomes.count("done") >= 5
