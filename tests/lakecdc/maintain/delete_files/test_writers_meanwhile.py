"""Writers that commit all the time, a compaction, an expiry: rows are those that were written, and no writer fails."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.expire import expire_snapshots
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.changes import Writer
from tests.lakecdc.maintain.delete_files.conftest import Meanwhile, once
from tests.lakecdc.maintain.delete_files.support import (
    count,
    create,
    pyiceberg_rows,
    run,
    spark_rows,
)

#: what differs between the versions is not what goes on beside the conversion; both run on demand
VERSIONS = pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.soak), 3])
# what a table has that ingest has made
PATIENT = {"commit.retry.num-retries": "20", "commit.retry.min-wait-ms": "20"}
DEFINED = {"done", "nothing", "conflict"}


def written_table(lake: Lake, version: int, seed: int, layout: str = "bucket(2, id)") -> tuple[str, Writer]:
    """A table and its writer, who has loaded it and changed it a little."""
    name = create(lake, "id bigint NOT NULL, v string", version, layout, **PATIENT)
    writer = Writer(lake, name, seed)
    writer.append(range(30))
    writer.upsert(range(10), range(5))
    return name, writer


def job(lake: Lake, name: str, **options: object) -> TableReport:
    """Another maintenance job of ours, by its name as in a spec."""
    kind = str(options.pop("job"))
    work = {"compact_data_files": compact_data_files, "expire_snapshots": expire_snapshots}[kind]
    return work(lake.table(name), parse_spec(lake.spec(kind, name, options=options)))


def expire_all(lake: Lake, name: str, retain_last: int) -> None:
    """Expire with Iceberg's own procedure, which knows nothing of running jobs but their tags."""
    lake.sql(
        f"CALL lake.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2099-01-01 00:00:00', "
        f"retain_last => {retain_last})"
    ).collect()


class Worker(threading.Thread):
    """Does something again and again until it is told to stop; an exception ends it and is kept.

    :param pause: seconds between two times.
    """

    def __init__(self, action: Callable[[], object], stop: threading.Event, pause: float) -> None:
        super().__init__(daemon=True)
        self._action, self._stop_asked, self._pause = action, stop, pause
        self.times = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Called by the thread."""
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
    """Let actions go on, each with its pause in seconds, and end with the first exception of one of them."""
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
def test_conversions_while_a_writer_goes_on(lake: Lake, version: int) -> None:
    name, writer = written_table(lake, version, seed=version)
    with working((writer.step, 0.3)) as (thread,):
        reports = [run(lake, name, engine=engine) for engine in ("exact", "join")]
        assert thread.is_alive() or thread.error is None
    assert {report.outcome for report in reports} <= {"done", "nothing"}
    assert sum(report.metrics["conflicts"] for report in reports if report.metrics) == 0
    assert thread.times > 0
    assert spark_rows(lake, name) == writer.expected()
    assert run(lake, name).outcome in DEFINED
    assert sorted(lake.duckdb_rows(name), key=repr) == pyiceberg_rows(lake, name) == writer.expected()


@VERSIONS
def test_two_converters_that_begin_together(lake: Lake, version: int) -> None:
    name, writer = written_table(lake, version, seed=3)
    reports: list[TableReport] = []
    both = [threading.Thread(target=lambda e=e: reports.append(run(lake, name, engine=e))) for e in ("exact", "join")]
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


@VERSIONS
@pytest.mark.parametrize("moment", ["planned", "before_commit"])
def test_our_compaction_in_the_middle(lake: Lake, version: int, moment: str, meanwhile: Meanwhile) -> None:
    name, writer = written_table(lake, version, seed=4)
    others: list[TableReport] = []
    meanwhile(
        once(lambda: others.append(job(lake, name, job="compact_data_files", min_input_files=2, delete_ratio=0.01))),
        moment,
    )
    report = run(lake, name)
    assert others[0].outcome == "done" and others[0].metrics["data_files_removed"] > 0
    assert report.outcome in ("done", "nothing")
    assert report.metrics["conflicts"] <= 1
    assert spark_rows(lake, name) == writer.expected()
    assert run(lake, name).outcome in ("done", "nothing")
    assert (count(lake, name, 2), spark_rows(lake, name)) == (0, writer.expected())


@pytest.mark.parametrize("starting", ["true", "false"])
@pytest.mark.parametrize("converted", ["before", "in the middle"])
def test_icebergs_compaction_with_either_sequence_number(
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


@VERSIONS
def test_start_snapshot_expired_after_the_plan(lake: Lake, version: int, meanwhile: Meanwhile) -> None:
    """Foreign expiry keeps what the job's tag protects, and cuts the way to the head: a new plan, or a conflict."""
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


def test_rollback_under_the_running_job(lake: Lake, meanwhile: Meanwhile) -> None:
    """Rolled back to before the start snapshot: deletes that are gone must not come back as position deletes."""
    name, writer = written_table(lake, 3, seed=7)
    before, head = writer.expected(), lake.table(name).head()
    writer.delete(range(20, 30))
    writer.upsert([11], [11])
    assert head is not None
    meanwhile(once(lambda: lake.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {head.id})")))
    report = run(lake, name)
    assert (report.outcome, report.metrics["conflicts"]) == ("done", 1)
    assert (count(lake, name, 2), spark_rows(lake, name)) == (0, before)


class Soak:
    """Everything at once on one table, at random."""

    def __init__(self, lake: Lake, version: int, seed: int) -> None:
        self.lake, self.random = lake, random.Random(seed)
        self.name, self.writer = written_table(lake, version, seed)
        self.outcomes: Counter[str] = Counter()
        # a reader that plans before and reads after a foreign expiry misses files, with or without our jobs
        self._reading = threading.Lock()

    def write(self) -> None:
        """One commit of the writer; now and then it looks at the table, which nobody else may change."""
        self.writer.step()
        if self.writer.commits % 7 == 0:
            with self._reading:
                assert spark_rows(self.lake, self.name) == self.writer.expected()

    def convert(self) -> None:
        """One conversion, proven."""
        self._note("rewrite_delete_files", run(self.lake, self.name, engine=self.random.choice(["exact", "join"])))

    def compact(self) -> None:
        """One compaction, of ours: Iceberg's own brings rows back (apache/iceberg #10312)."""
        report = job(self.lake, self.name, job="compact_data_files", min_input_files=3, delete_ratio=0.1)
        self._note("compact_data_files", report)

    def expire(self) -> None:
        """Our expiry, which spares the way from running jobs to the head, or a foreign one, which does not."""
        with self._reading:
            if self.random.random() < 0.5:
                report = job(self.lake, self.name, job="expire_snapshots", max_age=0, retain_last=3)
                self._note("expire_snapshots", report)
            else:
                expire_all(self.lake, self.name, retain_last=2)

    def _note(self, kind: str, report: TableReport) -> None:
        assert report.outcome in DEFINED, (kind, report.reason)
        self.outcomes[f"{kind} {report.outcome}"] += 1


@VERSIONS
@pytest.mark.parametrize(
    "seconds", [pytest.param(60, marks=pytest.mark.services), pytest.param(300, marks=pytest.mark.soak)]
)
def test_soak(lake: Lake, version: int, seconds: int) -> None:
    """A minute with the service tests, ten minutes of both format versions on demand."""
    soak = Soak(lake, version, seed=100 + version)
    with working((soak.write, 0.5), (soak.convert, 0.5), (soak.compact, 4), (soak.expire, 6)) as workers:
        until = time.monotonic() + seconds
        while time.monotonic() < until and all(worker.is_alive() for worker in workers):
            time.sleep(0.2)
    assert soak.outcomes["rewrite_delete_files done"] > 0, soak.outcomes
    assert all(worker.times > 0 for worker in workers), "one of the four had no turn"
    for _ in range(2):
        assert run(lake, soak.name).outcome in DEFINED
    assert count(lake, soak.name, 2) == 0
    expected = soak.writer.expected()
    assert spark_rows(lake, soak.name) == pyiceberg_rows(lake, soak.name) == expected
    assert sorted(lake.duckdb_rows(soak.name), key=repr) == expected
