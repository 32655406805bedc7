"""Continuous writers, a compaction and an expiry: all written rows stay, and no writer fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.maintain.compact import compact_data_files
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.changes import Writer
from tests.lakecdc.maintain.delete_files.conftest import Meanwhile, once
from tests.lakecdc.maintain.delete_files.support import create, pyiceberg_rows, run, spark_rows
from tests.lakecdc.maintain.support import count
from tests.lakecdc.maintain.support import run as run_job
from tests.on_demand import on_demand

#: the versions do not differ in what runs beside the conversion; both run on demand
VERSIONS = pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.soak), 3])
# the table properties that ingest sets
PATIENT = {"commit.retry.num-retries": "20", "commit.retry.min-wait-ms": "20"}
DEFINED = {"done", "nothing", "conflict"}


def written_table(lake: Lake, version: int, seed: int, layout: str = "bucket(2, id)") -> tuple[str, Writer]:
    """Create a table and its writer, loaded and changed a little."""
    name = create(lake, "id bigint NOT NULL, v string", version, layout, **PATIENT)
    writer = Writer(lake, name, seed)
    writer.append(range(30))
    writer.upsert(range(10), range(5))
    return name, writer


def expire_all(lake: Lake, name: str, retain_last: int) -> None:
    """Expire with Iceberg's procedure, which knows running jobs only by their tags."""
    lake.sql(
        f"CALL lake.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2099-01-01 00:00:00', "
        f"retain_last => {retain_last})"
    ).collect()


class Worker(threading.Thread):
    """A thread that repeats an action until it is stopped; an exception ends it and is stored.

    :param pause: seconds between two actions.
    """

    def __init__(self, action: Callable[[], object], stop: threading.Event, pause: float) -> None:
        super().__init__(daemon=True)
        self._action, self._stop_asked, self._pause = action, stop, pause
        self.times = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Repeat the action in the thread."""
        try:
            while not self._stop_asked.is_set():
                self._action()
                self.times += 1
                self._stop_asked.wait(self._pause)
        except BaseException as error:
            self.error = error
            self._stop_asked.set()


@contextmanager
def working(*actions: tuple[Callable[[], object], float]) -> Iterator[list[Worker]]:
    """Repeat actions, each with its pause in seconds, and raise the first exception of any of them."""
    stop = threading.Event()
    workers = [Worker(action, stop, pause) for action, pause in actions]
    for worker in workers:
        worker.start()
    try:
        yield workers
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    for worker in workers:
        if worker.error is not None:
            raise worker.error


@VERSIONS
def test_conversions_and_a_writer_run_side_by_side(lake: Lake, version: int) -> None:
    name, writer = written_table(lake, version, seed=version)
    with working((writer.step, 0.3)) as (thread,):
        reports = [run(lake, name) for _ in range(2)]
        assert thread.is_alive() or thread.error is None
    assert {report.outcome for report in reports} <= {"done", "nothing"}
    assert sum(report.metrics["conflicts"] for report in reports if report.metrics) == 0
    assert thread.times > 0
    assert spark_rows(lake, name) == writer.expected()
    assert run(lake, name).outcome in DEFINED
    assert sorted(lake.duckdb_rows(name), key=repr) == pyiceberg_rows(lake, name) == writer.expected()


@VERSIONS
def test_two_conversions_that_start_together_lose_no_delete(lake: Lake, version: int) -> None:
    name, writer = written_table(lake, version, seed=3)
    reports: list[TableReport] = []
    both = [threading.Thread(target=lambda: reports.append(run(lake, name))) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert {report.outcome for report in reports} <= {"done", "nothing"} and len(reports) == 2
    assert sum(report.metrics["commits"] for report in reports if report.metrics) == 1
    assert count(lake, name, 2) == 0
    assert spark_rows(lake, name) == writer.expected()
    referenced = lake.table(name).metadata("entries").where("status < 2 AND data_file.content = 1")
    files = [row[0] for row in referenced.select("data_file.referenced_data_file").collect()]
    assert len(files) == len(set(files))


@pytest.mark.usefixtures("unleased")
@VERSIONS
@pytest.mark.parametrize("moment", on_demand(("planned", "before_commit"), in_ci=("before_commit",)))
def test_a_concurrent_compaction_of_ours_loses_no_delete(
    lake: Lake, version: int, moment: str, meanwhile: Meanwhile
) -> None:
    name, writer = written_table(lake, version, seed=4)
    others: list[TableReport] = []
    compact = partial(run_job, lake, compact_data_files, name, min_input_files=2, delete_ratio=0.01)
    meanwhile(once(lambda: others.append(compact())), moment)
    report = run(lake, name)
    assert others[0].outcome == "done" and others[0].metrics["data_files_removed"] > 0
    assert report.outcome in ("done", "nothing")
    assert report.metrics["conflicts"] <= 1
    assert spark_rows(lake, name) == writer.expected()
    assert run(lake, name).outcome in ("done", "nothing")
    assert (count(lake, name, 2), spark_rows(lake, name)) == (0, writer.expected())


@pytest.mark.parametrize(
    ("converted", "starting"),
    on_demand(product(("before", "in the middle"), ("true", "false")), in_ci=[("in the middle", "false")]),
)
def test_a_concurrent_compaction_of_iceberg_loses_no_delete(
    lake: Lake, starting: str, converted: str, meanwhile: Meanwhile
) -> None:
    name, writer = written_table(lake, 2, seed=5)
    writer.append(range(100, 102))

    def compact() -> None:
        lake.sql(
            f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true', "
            f"'use-starting-sequence-number', '{starting}'))"
        ).collect()

    if converted == "before":
        run(lake, name)
        writer.upsert([1, 2, 100], [2])
        compact()
    else:
        meanwhile(once(compact))
    report = run(lake, name)
    assert report.outcome in ("done", "nothing")
    assert (count(lake, name, 2), spark_rows(lake, name)) == (0, writer.expected())


@pytest.mark.soak
@pytest.mark.parametrize("version", [2, 3])
def test_foreign_expiry_after_the_plan_causes_a_new_plan(lake: Lake, version: int, meanwhile: Meanwhile) -> None:
    """Foreign expiry keeps the tagged start snapshot, but cuts the history up to the head."""
    name, writer = written_table(lake, version, seed=6)

    def expire() -> None:
        writer.step()
        writer.step()
        expire_all(lake, name, retain_last=1)

    meanwhile(once(expire), "planned")
    report = run(lake, name)
    assert report.outcome == "done"
    assert (report.metrics["conflicts"], report.metrics["commits"]) == (1, 1)
    assert spark_rows(lake, name) == writer.expected()


def test_a_rollback_during_the_job_restores_no_deletes(lake: Lake, meanwhile: Meanwhile) -> None:
    """After a rollback to before the start snapshot, undone deletes must not return as position deletes."""
    name, writer = written_table(lake, 3, seed=7)
    before, head = writer.expected(), lake.table(name).head()
    writer.delete(range(20, 30))
    writer.upsert([11], [11])
    assert head is not None
    meanwhile(once(lambda: lake.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {head.id})")))
    report = run(lake, name)
    assert (report.outcome, report.metrics["conflicts"]) == ("done", 1)
    assert (count(lake, name, 2), spark_rows(lake, name)) == (0, before)
