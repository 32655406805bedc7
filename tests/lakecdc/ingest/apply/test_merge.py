"""Mode merge: the table equals the fold in any order of arrival, and no concurrent commit is lost."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from lakecdc.iceberg import commit as commits
from lakecdc.iceberg import scratch
from lakecdc.iceberg.lease import LeaseHeldError
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.maintain.start_tag import start_tag
from lakecdc.metadata import lease as length
from lakecdc.metadata import names
from lakecdc.metadata.lease import read_lease
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed, PlainHistory, final_rows, in_batches, scattered, truncate
from tests.lakecdc.ingest.histories import History
from tests.lakecdc.ingest.killing import Run


def merged(lake: Lake, folder: Path, **target: Any) -> Feed:
    return Feed(lake, folder, {"mode": "merge", **target})


def merged_with_an_update(lake: Lake, folder: Path, seed: int) -> tuple[Feed, PlainHistory]:
    """Make a table with a row whose update comes in the next run."""
    feed, history = merged(lake, folder), PlainHistory(random.Random(seed))
    history.insert(1)
    feed.take(history.events)
    history.update(1, touch_doc=True)
    feed.write(history.events[1:])
    return feed, history


def refs(lake: Lake, table: str) -> dict[str, int]:
    snapshot_refs = lake.table(table).java.refs()
    return {str(name): snapshot_refs.get(name).snapshotId() for name in snapshot_refs.keySet()}


@pytest.mark.parametrize(
    ("seed", "target"),
    [
        pytest.param(1, {"format_version": 2, "merge_mode": "copy-on-write"}, marks=pytest.mark.soak),
        pytest.param(2, {"format_version": 2, "partition_by": ["bucket(2, id)"]}, marks=pytest.mark.soak),
        pytest.param(3, {"format_version": 3, "partition_by": ["truncate(1, name)"]}, marks=pytest.mark.soak),
    ],
)
def test_whole_images_are_merged_in_any_order(lake: Lake, tmp_path: Path, seed: int, target: dict[str, Any]) -> None:
    feed, history = merged(lake, tmp_path, **target), PlainHistory.of(seed, 50)
    for events in scattered(history, seed, 3):
        feed.take(events)
    assert feed.rows() == final_rows(history)
    assert feed.run().outcome == "nothing"
    assert set(refs(lake, feed.table)) == {"main", names.POSITIONS_TAG}


def test_placeholders_and_key_changes_are_merged(lake: Lake, tmp_path: Path) -> None:
    feed, history = merged(lake, tmp_path, partition_by=["truncate(3, name)"]), History.of(4, 60)
    first, second = in_batches(history, 30)
    feed.take(first)
    report = feed.take(second)
    # the visible snapshot carries the position
    head = lake.table(feed.table).head()
    assert head and str(head.id) == report.snapshot_after
    assert {names.POSITIONS, names.READ_THROUGH, names.COMMIT_ID} <= set(head.summary)
    assert head.summary[names.JOB] == "ingest"
    assert refs(lake, feed.table) == {"main": head.id, names.POSITIONS_TAG: head.id}
    assert report.metrics["data_files"] and report.metrics["rows_written"]
    assert report.metrics["commits"] == 1
    feed.take(history.events)
    assert feed.rows() == final_rows(history)


def test_merge_mode_changes_an_existing_table(lake: Lake, tmp_path: Path) -> None:
    feed, history = merged(lake, tmp_path), PlainHistory(random.Random(6))
    history.insert(1)
    history.insert(2)
    feed.take(history.events)
    for mode, deletes in (("merge-on-read", True), ("copy-on-write", False)):
        feed.target["merge_mode"] = mode
        history.update(1, touch_doc=True)
        report = feed.take(history.events[-1:])
        assert bool(report.metrics["delete_files"]) is deletes
        assert lake.table(feed.table).properties["write.merge.mode"] == mode
    assert feed.rows() == final_rows(history)


def test_only_files_that_may_have_the_keys_are_read(lake: Lake, tmp_path: Path) -> None:
    feed, history = merged(lake, tmp_path, partition_by=["bucket(8, id)"]), PlainHistory(random.Random(7))
    for key in range(40):
        history.insert(key)
    feed.take(history.events)
    history.update(3, touch_doc=True)
    files = {r[1]: r[0] for r in lake.sql(f"SELECT _file, id FROM lake.{feed.table}").collect()}
    away = {Path(file.removeprefix("file:")) for file in set(files.values()) - {files[3]}}
    assert len(away) > 3
    for path in away:
        path.rename(path.with_suffix(".hidden"))
    feed.take(history.events[40:])
    for path in away:
        path.with_suffix(".hidden").rename(path)
    assert feed.rows() == final_rows(history)


def test_a_truncate_before_or_within_a_batch_is_merged(lake: Lake, tmp_path: Path) -> None:
    feed, history = merged(lake, tmp_path), PlainHistory(random.Random(8))
    for key in range(4):
        history.insert(key)
    feed.take(history.events)
    history.insert(7)
    truncate(history)
    history.insert(8)
    within = history.events[4:]
    late = truncate(history)
    history.insert(9)
    feed.take([*within, history.events[-1]])
    assert [row[0] for row in feed.rows()] == [8, 9]
    feed.take([late])
    assert feed.rows() == final_rows(history)


def test_rows_without_an_order_key_are_older_than_any_event(lake: Lake, tmp_path: Path) -> None:
    feed, history = merged(lake, tmp_path), PlainHistory(random.Random(9))
    history.insert(1)
    feed.take(history.events)
    lake.sql(f"INSERT INTO lake.{feed.table} (id, name) VALUES (2, 'by hand')")
    history.insert(2)
    feed.take(history.events[1:])
    assert feed.rows() == final_rows(history)


def test_commits_of_another_writer_during_the_merge_are_kept(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, history = merged_with_an_update(lake, tmp_path, 10)
    publish, calls = scratch.publish, []

    def interfere(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            lake.sql(f"INSERT INTO lake.{feed.table} (id, name) VALUES (5, 'meanwhile')")
        return publish(*args)

    monkeypatch.setattr(scratch, "publish", interfere)
    report = feed.run()
    assert (report.outcome, report.metrics["retries"], len(calls)) == ("done", 1, 2)
    assert feed.rows() == sorted([*final_rows(history), (5, "meanwhile", None, None)], key=str)
    assert set(refs(lake, feed.table)) == {"main", names.POSITIONS_TAG}


@pytest.mark.soak
def test_a_commit_at_the_last_moment_is_not_lost(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, history = merged_with_an_update(lake, tmp_path, 11)
    commit, calls = commits.commit_to_branch, []

    def interfere(table: Any, changes: Any, fence: Any, branch: str, then: Any) -> Any:
        def late(transaction: Any) -> None:
            then(transaction)
            calls.append(1)
            lake.sql(f"INSERT INTO lake.{feed.table} (id, name) VALUES ({len(calls)}00, 'meanwhile')")

        return commit(table, changes, fence, branch, late if len(calls) < 6 else then)

    monkeypatch.setattr(scratch, "commit_to_branch", interfere)
    report = feed.run()
    assert (report.outcome, report.failure_class) == ("conflict", "conflict")
    assert len(calls) == 4 and "during each of 4 merges" in (report.reason or "")
    monkeypatch.setattr(scratch, "commit_to_branch", commit)
    assert feed.run().outcome == "done"
    assert {r[0] for r in feed.rows()} == {1, 100, 200, 300, 400}
    assert final_rows(history)[0] in feed.rows()


def test_a_rollback_during_the_merge_is_not_undone(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, history = merged(lake, tmp_path), PlainHistory(random.Random(12))
    history.insert(1)
    first = feed.take(history.events).snapshot_after
    history.insert(2)
    feed.take(history.events[1:])
    history.insert(3)
    feed.write(history.events[2:])
    publish = scratch.publish

    def interfere(*args: Any) -> Any:
        lake.sql(f"CALL lake.system.rollback_to_snapshot('{feed.table}', {first})")
        return publish(*args)

    monkeypatch.setattr(scratch, "publish", interfere)
    report = feed.run()
    assert report.outcome == "conflict" and "moved the source positions" in (report.reason or "")
    assert [r[0] for r in feed.rows()] == [1]
    monkeypatch.setattr(scratch, "publish", publish)
    assert feed.run().outcome == "done"
    assert feed.rows() == final_rows(history)


def test_the_lease_is_held_during_the_merge(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, history = merged_with_an_update(lake, tmp_path, 13)
    publish, holders = scratch.publish, []

    def look(table: Any, *args: Any) -> Any:
        other = lake.table(feed.table)
        lease = read_lease(other.properties)
        holders.append(lease and lease.holder)
        with pytest.raises(LeaseHeldError), start_tag(other, _head(other), "compact_data_files"):
            pass
        return publish(table, *args)

    monkeypatch.setattr(length, "SECONDS", 3.0)
    monkeypatch.setattr(scratch, "publish", look)
    assert feed.run().outcome == "done"
    assert len(holders) == 1 and str(holders[0]).startswith("ingest in Spark application")
    assert feed.rows() == final_rows(history)
    assert set(refs(lake, feed.table)) == {"main", names.POSITIONS_TAG}
    assert names.LEASE not in lake.table(feed.table).properties


@pytest.mark.parametrize("given_back", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_merge_waits_for_a_lease_no_longer_than_its_renewal(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_back: bool
) -> None:
    feed, history = merged_with_an_update(lake, tmp_path, 14)
    leased = lake.table(feed.table)
    monkeypatch.setattr(length, "SECONDS", 6.0)
    meanwhile = start_tag(leased, _head(leased), "compact_data_files")
    meanwhile.__enter__()
    leave = threading.Timer(1.0 if given_back else 60.0, meanwhile.__exit__, (None, None, None))
    leave.start()
    has_lease, publish = list[bool](), scratch.publish

    def look(table: Any, *args: Any) -> Any:
        has_lease.append(table.lease is not None)
        return publish(table, *args)

    monkeypatch.setattr(scratch, "publish", look)
    try:
        assert feed.run().outcome == "done"
    finally:
        leave.cancel()
        if not given_back:
            meanwhile.__exit__(None, None, None)
    assert has_lease == [given_back]
    assert feed.rows() == final_rows(history)


def _head(table: IcebergTable) -> Snapshot:
    snapshot = table.refresh().head()
    assert snapshot is not None
    return snapshot


@pytest.mark.soak
def test_a_paused_merge_is_refused_once_others_have_moved_on(lake: Lake, tmp_path: Path) -> None:
    feed, history = merged(lake, tmp_path), PlainHistory.of(13, 30)
    first, second, third = in_batches(history, 10, 20)
    feed.take(first)
    feed.write(second)
    flag = tmp_path / "paused"
    paused = Run(tmp_path, feed.spec, f"before_commit=pause:{flag}")
    paused.wait_for(flag)
    assert feed.run().outcome == "done"
    feed.take(third)
    flag.unlink()
    late = paused.report()["tables"][0]
    assert (late["outcome"], late["failure_class"], paused.process.returncode) == ("conflict", "conflict", 3)
    assert feed.rows() == final_rows(history)
    assert set(refs(lake, feed.table)) == {"main", names.POSITIONS_TAG}


@pytest.mark.soak
@pytest.mark.parametrize(("moment", "then"), [("before_commit", "done"), ("after_commit", "nothing")])
def test_a_killed_run_can_be_repeated(lake: Lake, tmp_path: Path, moment: str, then: str) -> None:
    feed, history = merged(lake, tmp_path), History.of(14, 30)
    first, second = in_batches(history, 15)
    feed.take(first)
    feed.write(second)
    assert Run(tmp_path, feed.spec, f"{moment}=kill").was_killed()
    stale = [name for name in refs(lake, feed.table) if name.startswith(names.MERGE_BRANCH_PREFIX)]
    assert bool(stale) is (then == "done")
    assert feed.run().outcome == then
    assert feed.rows() == final_rows(history)
    # the next run after the lease's end takes over the killed run's lease
    assert set(refs(lake, feed.table)) - {names.LEASE_TAG} == {"main", names.POSITIONS_TAG}
