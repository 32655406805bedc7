"""Rows move to the current partition spec while ingestion writes, and no row is duplicated or restored.

DuckDB 1.5.5 fails on equality deletes over two specs, so Spark reads until they are gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.iceberg.commit import RowChanges, replace_deletes
from lakecdc.iceberg.live_deletes import equality_deletes
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files import job as conversion
from lakecdc.maintain.delete_files import plan
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.runtime import failpoints
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import final_rows
from tests.lakecdc.maintain.fed import Fed, commit_foreign_deletes
from tests.lakecdc.maintain.support import (
    append,
    append_parts,
    create,
    duckdb_rows,
    live_files,
    meanwhile,
    run,
    spark_rows,
)
from tests.versions import V2, V3


@pytest.fixture
def fed(lake: Lake, tmp_path: Path, version: int) -> Fed:
    return Fed(lake, tmp_path, version)


@V3
def test_all_files_of_older_specs_move_in_bounded_commits(fed: Fed, version: int) -> None:
    fed.evolve()
    fed.ingest()
    assert fed.specs() == {0, 1}
    dry = fed.move(dry_run=True)
    assert (dry.outcome, dry.metrics["files_of_older_specs"], dry.metrics["groups"]) == ("nothing", 2, 2)
    assert run(fed.lake, compact_data_files, fed.name).outcome == "nothing"
    report = fed.move(max_group_bytes=1)
    assert (report.outcome, report.metrics["commits"], report.metrics["files_left"]) == ("done", 2, 0)
    assert fed.specs() == {1}
    fed.check()
    assert fed.move().metrics["files_of_older_specs"] == 0
    run(fed.lake, rewrite_delete_files, fed.name)
    assert fed.feed.rows() == final_rows(fed.history)


@V2
def test_a_batch_committed_before_the_move_is_not_undone(
    fed: Fed, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    fed.evolve()
    meanwhile(monkeypatch, "rewrite_before_commit", fed.ingest)
    assert fed.move().outcome == "done"
    assert fed.specs() == {1}
    fed.check()
    run(fed.lake, rewrite_delete_files, fed.name)
    assert fed.feed.rows() == final_rows(fed.history)


@V3
def test_a_batch_staged_before_the_move_is_staged_again(
    fed: Fed, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    stagings, todo = list[str](), list[Callable[[], object]]([fed.evolve, fed.move])

    def reach(name: str) -> None:
        if name == "before_commit":
            stagings.append(name)
            while todo:
                todo.pop(0)()

    monkeypatch.setattr(failpoints, "reach", reach)
    fed.ingest()
    assert len(stagings) == 2 and fed.specs() == {1}
    fed.check()
    # once the new spec is known, a batch applies to rows wherever they are at its commit
    fed.evolve(4, 8)
    todo.append(fed.move)
    fed.ingest()
    assert len(stagings) == 3 and fed.specs() == {2}
    fed.check()


def drop_deletes_of_the_new_spec(lake: Lake, name: str) -> None:
    """Drop the deletes that apply to nothing, like a conversion that was interrupted after them."""
    table = lake.table(name)
    head = table.head()
    assert head is not None
    dangling = [delete.java for delete in equality_deletes(table, head.id) if delete.spec_id == 1]
    assert dangling
    replace_deletes(table, RowChanges(removed_deletes=dangling), start_snapshot_id=head.id)


@V2
def test_the_move_is_refused_if_deletes_of_the_new_spec_are_dropped(
    fed: Fed, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    fed.evolve()

    def act() -> None:
        fed.ingest()
        drop_deletes_of_the_new_spec(fed.lake, fed.name)

    meanwhile(monkeypatch, "rewrite_before_commit", act)
    report = fed.move()
    assert report.outcome == "conflict" and "that its rows have left" in str(report.reason)
    fed.check()
    assert fed.move().outcome == "done" and fed.specs() == {1}
    fed.check()


class Waiting:
    """A move in a thread that waits before its commit."""

    def __init__(self, fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ready, self._go = threading.Event(), threading.Event()
        self.report: TableReport | None = None
        self.thread = threading.Thread(target=self._run, args=[fed])
        reach = failpoints.reach

        def wait(name: str) -> None:
            if name == "rewrite_before_commit" and threading.current_thread() is self.thread:
                self._ready.set()
                assert self._go.wait(300)
            reach(name)

        monkeypatch.setattr(failpoints, "reach", wait)
        self.thread.start()
        assert self._ready.wait(300)

    def _run(self, fed: Fed) -> None:
        self.report = fed.move()

    def commit(self) -> None:
        self._go.set()
        self.thread.join()


@V2
@pytest.mark.usefixtures("unleased")
def test_a_conversion_keeps_deletes_that_apply_to_moved_rows(
    fed: Fed, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    fed.evolve()
    move = Waiting(fed, monkeypatch)
    fed.ingest()
    # deletes that apply to nothing are dropped in a separate commit
    monkeypatch.setattr(plan, "GROUP_DATA_FILES", 0)
    todo: Iterator[Any] = iter([move.commit])

    def reach(name: str) -> None:
        if name == "rewrite_delete_files.planned":
            next(todo, lambda: None)()

    monkeypatch.setattr(conversion, "reach", reach)
    report = run(fed.lake, rewrite_delete_files, fed.name)
    assert move.report is not None and move.report.outcome == "done"
    assert (report.outcome, report.metrics["conflicts"]) == ("done", 1)
    fed.check()
    assert fed.feed.rows() == final_rows(fed.history)


def test_rows_stay_while_another_writer_deletes_by_key(lake: Lake) -> None:
    name = create(lake, 2, "bucket(2, id)")
    append_parts(lake, name, 0, 60, 6)
    commit_foreign_deletes(lake, name)
    lake.sql(f"ALTER TABLE lake.{name} REPLACE PARTITION FIELD bucket(2, id) WITH bucket(4, id)")
    files = live_files(lake, name)
    for older_specs in (True, False):
        report = run(lake, compact_data_files, name, older_specs=older_specs)
        assert (report.outcome, report.metrics["files_left"]) == ("nothing", 12)
        assert "12 files of older partition specs stay" in str(report.reason)
        assert "another writer added" in str(report.reason)
    assert live_files(lake, name) == files
    # the writer of an expired snapshot is unknown
    lake.sql(
        f"CALL lake.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2099-01-01 00:00:00', "
        "retain_last => 1)"
    ).collect()
    append(lake, name, 100, 110)
    lake.sql(f"CALL lake.system.expire_snapshots('{name}', TIMESTAMP '2099-01-01 00:00:00', 1)").collect()
    assert "expired snapshots" in str(run(lake, compact_data_files, name, older_specs=True).reason)


@V3
def test_rows_without_a_common_bucket_move_to_their_partitions(lake: Lake, version: int) -> None:
    name = create(lake, version)
    append_parts(lake, name, 0, 60, 3)
    lake.sql(f"ALTER TABLE lake.{name} ADD PARTITION FIELD d")
    lake.sql(f"ALTER TABLE lake.{name} ADD PARTITION FIELD bucket(3, id)")
    rows = duckdb_rows(lake, name)
    report = run(lake, compact_data_files, name, older_specs=True)
    assert report.outcome == "done" and report.metrics["data_files_removed"] == 3
    # one file per partition, whichever task wrote it
    assert len(live_files(lake, name)) == 6
    assert spark_rows(lake, name) == rows == duckdb_rows(lake, name)
    assert {len(task.file.partition) for task in lake.pyiceberg().load_table(name).scan().plan_files()} == {2}
