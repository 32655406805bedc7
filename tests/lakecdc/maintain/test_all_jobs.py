"""Continuous writers and every maintenance job in random order keep rows, layout and files correct."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from airflow_provider_lakecdc.governance.precheck import precheck_tables
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec, parse_spec
from lakecdc.iceberg.partition_fields import Fields, PartitionField, partition_fields
from lakecdc.iceberg.sort_order import clustering
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.maintain.expire_partitions import expire_partitions
from lakecdc.maintain.manifests import rewrite_manifests
from lakecdc.maintain.measure import measure
from lakecdc.maintain.older_specs import one_bucket
from lakecdc.maintain.orphans.job import RemoveOrphanFiles
from lakecdc.maintain.orphans.search import FOLDER
from lakecdc.maintain.rebucket import rebucket
from lakecdc.maintain.sort import sort_data_files
from lakecdc.maintain.statistics import compute_statistics
from lakecdc.maintain.tag import tag_snapshots
from lakecdc.metadata import names
from lakecdc.metadata.file_facts import FileFacts
from lakecdc.metadata.overlap import ColumnBounds, lexicographic_ends
from lakecdc.runtime.run import TableWork, each_table
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import COLUMNS, final_rows
from tests.lakecdc.maintain.delete_files.changes import Writer
from tests.lakecdc.maintain.delete_files.support import create, insert
from tests.lakecdc.maintain.fed import Fed

DAY = 24 * 3600
DEFINED = {"done", "nothing", "conflict"}
# the table properties that ingest sets
PATIENT = {"commit.retry.num-retries": "20", "commit.retry.min-wait-ms": "20"}
#: rows from this key on are old, and their table's expiry removes them
_FIRST_OLD = 10_000
#: steps that remove what other steps read
_UNDISTURBED = ("expire_snapshots", "foreign_expiry", "remove_orphan_files")
#: how often a worker predicted by job that there is nothing to do
PREDICTED: Counter[str] = Counter()
Options = Callable[[random.Random], dict[str, Any]]


def _target(rng: random.Random) -> dict[str, Any]:
    return {"target_file_size_bytes": rng.choice([600, 4000, 20_000])}


def _compaction(rng: random.Random) -> dict[str, Any]:
    chance = {"min_input_files": rng.choice([2, 5]), "delete_ratio": 0.1, "older_specs": rng.random() < 0.3}
    return {**_target(rng), **chance}


def _buckets(rng: random.Random) -> dict[str, Any]:
    size = {"target_bucket_bytes": rng.choice([500, 10**6]), "min_buckets": 2, "max_buckets": 8}
    return {**_target(rng), **size, "max_group_bytes": rng.choice([50_000, 10**9])}


def _tags(rng: random.Random) -> dict[str, Any]:
    # without an age it would keep its snapshot forever
    change = {"action": "create", "kind": rng.choice(["tag", "branch"]), "name": f"of-{rng.random()}", "max_age": 5}
    return {"days": 1, "changes": [change]}


def _orphans(rng: random.Random) -> dict[str, Any]:
    return {"dry_run": rng.random() < 0.3}


def _foreign_expiry(table: IcebergTable, _: JobSpec) -> TableReport:
    """Expire with Iceberg's procedure, which knows running jobs only by their tags."""
    moment = "older_than => TIMESTAMP '2099-01-01 00:00:00', retain_last => 2"
    table.spark.sql(f"CALL lake.system.expire_snapshots(table => '{table.name}', {moment})").collect()
    return TableReport(table.name, "done")


#: by step: the job, its work and its options
STEPS: dict[str, tuple[str, TableWork, Options]] = {
    "rewrite_delete_files": ("rewrite_delete_files", rewrite_delete_files, lambda _: {}),
    "sort_data_files": ("sort_data_files", sort_data_files, lambda rng: {**_target(rng), "min_overlap_depth": 1.1}),
    "compact_data_files": ("compact_data_files", compact_data_files, _compaction),
    "add_bloom_filters": ("compact_data_files", compact_data_files, lambda _: {"add_bloom_filters": True}),
    "rewrite_manifests": ("rewrite_manifests", rewrite_manifests, lambda _: {"min_manifests": 2}),
    "tag_snapshots": ("tag_snapshots", tag_snapshots, _tags),
    "expire_snapshots": ("expire_snapshots", expire_snapshots, lambda rng: {"max_age": 0, "retain_last": 3}),
    "foreign_expiry": ("expire_snapshots", _foreign_expiry, lambda _: {}),
    "rebucket": ("rebucket", rebucket, _buckets),
    "compute_statistics": ("compute_statistics", compute_statistics, lambda _: {"min_changed_ratio": 0.05}),
    "expire_partitions": (
        "expire_partitions",
        expire_partitions,
        lambda _: {"time_column": "day", "max_age": 100 * DAY, "allow_row_deletes": True},
    ),
    "remove_orphan_files": ("remove_orphan_files", RemoveOrphanFiles(), _orphans),
}


_WRITTEN_ONLY = ("expire_partitions", "foreign_expiry", "add_bloom_filters")


class Ingested:
    """A table that ingestion feeds from event files."""

    steps = tuple(step for step in STEPS if step not in _WRITTEN_ONLY)

    def __init__(self, lake: Lake, folder: Path, version: int) -> None:
        self.fed = Fed(lake, folder, version)
        self.name = self.fed.name

    def write(self) -> None:
        """Ingest a batch."""
        self.fed.ingest()

    def expected(self) -> list[tuple[Any, ...]]:
        """Return the source's rows."""
        return final_rows(self.fed.history)

    @property
    def columns(self) -> str:
        """The source's columns."""
        return COLUMNS


class Dated(Writer):
    """A writer of rows with a day in the future."""

    day = datetime.date(2099, 1, 1)

    def _values(self, keys: Iterable[int]) -> str:
        return f"SELECT *, DATE '{self.day}' AS day FROM ({super()._values(keys)})"


class Written:
    """A table whose writer commits equality deletes and rows as other CDC writers do, and sometimes old rows.

    Its number of buckets is fixed: such a writer's deletes do not follow rows to another spec.
    """

    steps = tuple(step for step in STEPS if step != "rebucket")
    columns = "id, v, day"

    def __init__(self, lake: Lake, version: int, seed: int, still: AbstractContextManager[Any]) -> None:
        self._lake, self._still = lake, still
        self.name = create(lake, "id bigint NOT NULL, v string, day date", version, "bucket(2, id)", **PATIENT)
        lake.sql(f"ALTER TABLE lake.{self.name} SET TBLPROPERTIES ('{names.BLOOM_FILTER_COLUMNS}'='id')")
        lake.sql(f"ALTER TABLE lake.{self.name} WRITE ORDERED BY id")
        self.writer = Dated(lake, self.name, seed, keys=80)
        self.writer.append(range(60))

    def write(self) -> None:
        """Commit; each fifth commit adds rows that expire, and before each seventh the rows are compared."""
        if self.writer.commits % 7 == 0:
            with self._still:
                rows = self._lake.sql(f"SELECT {self.columns} FROM lake.{self.name} WHERE id < {_FIRST_OLD}").collect()
            assert sorted((tuple(row) for row in rows), key=str) == self.expected()
        self.writer.step()
        if self.writer.commits % 5 == 0:
            old = _FIRST_OLD + self.writer.commits
            insert(self._lake, self.name, f"SELECT {old}L AS id, 'old' AS v, DATE '2020-01-01' AS day")

    def expected(self) -> list[tuple[Any, ...]]:
        """Return the model's rows."""
        return sorted(((id, v, self.writer.day) for id, v in self.writer.rows.items()), key=str)


Ground = Ingested | Written


class Soak:
    """Two tables with continuous writers, and jobs on them in random order.

    :param seed: seed of all random choices.
    """

    def __init__(self, lake: Lake, folder: Path, version: int, seed: int) -> None:
        print(f"seed {seed}, format version {version}")
        self.lake, self.rng = lake, random.Random(seed)
        # a reader that plans before and reads after a foreign expiry misses files, with or without our jobs
        self._still = threading.RLock()
        written = Written(lake, version, seed, self._still)
        self.grounds: tuple[Ground, ...] = (Ingested(lake, folder, version), written)
        self.outcomes: Counter[str] = Counter()
        self.deepened: list[str] = []
        self.measured = 0
        self.planted: Counter[str] = Counter()

    def run_jobs(self, seconds: float, lanes: int = 1) -> None:
        """Run jobs beside the writer, in rounds of all jobs; the first round is always completed.

        :param lanes: number of jobs that run at the same time.
        """
        for ground in (*self.grounds, *self.grounds):
            # something to work on
            ground.write()
        until = time.monotonic() + seconds
        writer = Worker([ground.write for ground in self.grounds], pause=0.3)
        workers = [Worker(self._turns(), pause=0) for _ in range(lanes)]
        for worker in (writer, *workers):
            worker.start()
        while all(worker.is_alive() for worker in (writer, *workers)):
            time.sleep(0.1)
            if time.monotonic() > until and all(worker.times >= len(STEPS) for worker in workers):
                break
        errors = [error for worker in (writer, *workers) if (error := worker.stop())]
        if errors:
            raise errors[0]
        assert writer.times >= len(self.grounds)

    def _turns(self) -> Iterator[Callable[[], object]]:
        while True:
            for step in self.rng.sample(list(STEPS), len(STEPS)):
                ground = self.rng.choice([ground for ground in self.grounds if step in ground.steps])
                yield partial(self.take, step, ground)

    def take(self, step: str, ground: Ground) -> TableReport:
        """Run one job on one table."""
        _, _, options = STEPS[step]
        chosen = options(self.rng)
        with self._still if step in _UNDISTURBED else nullcontext():
            if step == "remove_orphan_files":
                self._leave(ground.name)
            report = run(self.lake, step, ground.name, **chosen)
        assert report.outcome in DEFINED, (step, ground.name, chosen, report.reason)
        self.outcomes[f"{step} {report.outcome}"] += 1
        if step == "remove_orphan_files" and not chosen["dry_run"]:
            removed = (report.metrics["files_taken"], report.metrics["files_spared"])
            assert removed == (self.planted.pop(ground.name), 0), report.metrics
        with self._still:
            self._compare(step, chosen, report)
        return report

    def _leave(self, name: str) -> None:
        """Age the files in use, which must stay, and plant unknown files, which must be removed."""
        for location in reachable(self.lake, name):
            os.utime(location, (time.time() - 30 * DAY,) * 2)
        for left in (f"data/left {time.monotonic_ns()}.parquet", f"metadata/left {time.monotonic_ns()}-m0.avro"):
            path = folder_of(self.lake, name) / left
            path.write_text("left")
            os.utime(path, (time.time() - 30 * DAY,) * 2)
            self.planted[name] += 1

    def _compare(self, step: str, options: dict[str, Any], report: TableReport) -> None:
        """Record commits of a job after which keys lie in more files than before."""
        table = self.lake.table(report.table)
        ancestors = list(table.ancestors())
        known = {s.id for s in ancestors}
        since: list[Snapshot] = []
        for snapshot in ancestors:
            if str(snapshot.id) == report.snapshot_before:
                break
            since.append(snapshot)
        job = STEPS[step][0]
        of_others = {s.id for s in since if s.summary.get(names.JOB) != job}
        order = clustering(table)
        for snapshot in since:
            if snapshot.id in of_others or snapshot.parent_id not in known:
                continue
            assert snapshot.parent_id is not None
            old, new = (
                {file.location: file for files in measure(table, id, order).values() for file in files}
                for id in (snapshot.parent_id, snapshot.id)
            )
            # the job neither read nor changed files that others committed meanwhile
            unseen = {location for location in old if old[location].added_by in of_others} & set(new)
            before, after = ([f for f in files.values() if f.location not in unseen] for files in (old, new))
            self.measured += 1
            removed, added = ({a[place].spec_id for place in a.keys() - b.keys()} for a, b in ((old, new), (new, old)))
            # moved rows lie in other partitions than before
            moves = removed != added
            if places := opened_more(before, after, partition_fields(table)) if moves else deeper(before, after):
                self.deepened.append(f"{step} {options} of {report.table}: {places}, {report.metrics}")

    def check(self) -> None:
        """Check what must hold after the last write."""
        print(json.dumps(self.outcomes, indent=1), "predicted:", dict(PREDICTED))
        assert self.measured > 0 and not self.deepened, "\n".join(self.deepened)
        for ground in self.grounds:
            if "expire_partitions" in ground.steps:
                assert self.take("expire_partitions", ground).outcome != "conflict"
            for _ in range(2):
                assert self.take("rewrite_delete_files", ground).outcome != "conflict"
            expected = ground.expected()
            spark = self.lake.sql(f"SELECT {ground.columns} FROM lake.{ground.name}").collect()
            assert sorted((tuple(row) for row in spark), key=str) == expected
            assert sorted(self.lake.duckdb_rows(ground.name, ground.columns), key=str) == expected
            self._explained(ground.name)

    def _explained(self, name: str) -> None:
        """Check that each file below the table's location is in use or an orphan that the search finds once it is old.

        Apart from planted files, orphans may only be metadata: Iceberg's commit retries sometimes leave a manifest, and
        computing a snapshot's statistics twice leaves the first file.
        """
        there = {path for path in folder_of(self.lake, name).rglob("*") if path.is_file() and FOLDER not in path.parts}
        left = {
            path for path in there - set(map(Path, reachable(self.lake, name))) if path.suffix not in (".json", ".crc")
        }
        planted = {path for path in left if path.name.startswith("left ")}
        others = left - planted
        print(f"{name}: {len(others)} metadata files are left")
        assert len(planted) == self.planted[name]
        assert {path.parent.name for path in others} <= {"metadata"}, sorted(map(str, others))[:10]
        for path in others:
            os.utime(path, (time.time() - 30 * DAY,) * 2)
        report = run(self.lake, "remove_orphan_files", name, dry_run=True)
        assert report.metrics["orphan_files"] == len(left), (report.metrics, sorted(map(str, left)))


def run(lake: Lake, step: str, name: str, **options: Any) -> TableReport:
    """Run a job on one table as the job runner does, and check that the worker's precheck missed no work."""
    job, work, _ = STEPS[step]
    spec = parse_spec(lake.spec(job, name, options=options))
    prechecked = precheck_tables(SimpleNamespace(load=lake.pyiceberg), spec)  # type: ignore[arg-type]
    (report,) = each_table(work)(lake.spark, spec)
    for idle in prechecked.idle:
        if idle.snapshot_before == report.snapshot_before:
            assert report.outcome == "nothing", (step, options, idle, report)
            PREDICTED[job] += 1
    return report


def deeper(before: Iterable[FileFacts], after: Iterable[FileFacts]) -> list[tuple[Any, ...]]:
    """Return where keys lie in more files than before, and in more than one.

    Average depth also rises when a file without overlap or deleted rows are removed.

    :return: spec, partition, begin and end of a piece of the order, and its number of files before and after.
    """
    pieces = list[tuple[Any, ...]]()
    was, by = _by_partition(before), _by_partition(after)
    for partition, files in by.items():
        ends = sorted({end for f in (*files, *was[partition]) for end in (f.lower, f.upper)})
        # the piece from an end to itself matters for files with only this key
        for low, high in itertools.chain(pairwise(ends), zip(ends, ends, strict=True)):
            counts = [sum(f.lower <= low and high <= f.upper for f in each) for each in (was[partition], files)]
            if counts[1] > max(counts[0], 1) and (low < high or any(f.lower == f.upper == low for f in files)):
                pieces.append((*partition, low, high, counts))
    return pieces


def opened_more(
    before: Sequence[FileFacts], after: Sequence[FileFacts], specs: Mapping[int, Fields]
) -> list[tuple[int, int, int]]:
    """Return keys of bucketed tables whose look-up opens more files than before, and more than one, in any spec.

    :param specs: partition fields by spec.
    :return: each key, and how many files its look-up opens before and after.
    """
    keys = list[tuple[int, int, int]]()
    ends = {end[0][1] for file in (*before, *after) for end in (file.lower, file.upper)}
    for key in sorted(ends | {end + 1 for end in ends}):
        was, opens = (sum(_may_hold(file, key, specs[file.spec_id]) for file in files) for files in (before, after))
        if opens > max(was, 1):
            keys.append((key, was, opens))
    return keys


def _may_hold(file: FileFacts, key: int, fields: Fields) -> bool:
    bucket = one_bucket(fields)
    assert bucket is not None and bucket.buckets is not None
    of_key = BucketTransform(bucket.buckets).transform(LongType())(key)
    return json.loads(file.partition)[bucket.name] == of_key and file.lower[0][1] <= key <= file.upper[0][1]


def _by_partition(files: Iterable[FileFacts]) -> defaultdict[tuple[int, str], list[FileFacts]]:
    partitions = defaultdict[tuple[int, str], list[FileFacts]](list)
    for file in files:
        assert file.key_range.known, file
        partitions[file.spec_id, file.partition].append(file)
    return partitions


def folder_of(lake: Lake, name: str) -> Path:
    """Return the table's folder."""
    return Path(unquote(urlsplit(lake.table(name).location).path))


def reachable(lake: Lake, name: str) -> list[str]:
    """Return the paths of all files of a table's snapshots and statistics, as pyiceberg reads them."""
    table = lake.pyiceberg().load_table(name)
    locations = {each.statistics_path for each in (*table.metadata.statistics, *table.metadata.partition_statistics)}
    manifests: dict[str, Any] = {}
    for snapshot in table.metadata.snapshots:
        locations.add(snapshot.manifest_list)
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    for manifest in manifests.values():
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        locations |= {e.data_file.file_path for e in entries if e.status != ManifestEntryStatus.DELETED}
    return [unquote(urlsplit(location).path) for location in (*locations, *manifests)]


class Worker(threading.Thread):
    """A thread that runs actions until it is stopped; an exception ends it and is stored.

    :param actions: actions to run; a list is repeated.
    :param pause: seconds between two actions.
    """

    def __init__(self, actions: Iterable[Callable[[], object]], pause: float) -> None:
        super().__init__(daemon=True)
        self._actions = itertools.cycle(actions) if isinstance(actions, list) else iter(actions)
        self._pause, self._stop_asked = pause, threading.Event()
        self._error: BaseException | None = None
        self.times = 0

    def run(self) -> None:
        """Run the actions in the thread."""
        try:
            while not self._stop_asked.wait(self._pause):
                next(self._actions)()
                self.times += 1
        except BaseException as error:
            self._error = error

    def stop(self) -> BaseException | None:
        """Stop the thread and return the exception that ended it, if any."""
        self._stop_asked.set()
        self.join()
        return self._error


def test_deeper_compares_keys_and_ranges() -> None:
    def files(*ends: tuple[int, int]) -> list[FileFacts]:
        return [FileFacts(f"{low}-{high}", 0, "{}", 1, 1, 1, lower=low, upper=high) for low, high in ends]

    assert not deeper(files((0, 5), (0, 5), (9, 9)), files((0, 5), (0, 5)))
    assert not deeper(files((0, 3), (5, 7)), files((0, 7)))
    assert not deeper(files((0, 4), (2, 7)), files((0, 3), (3, 7)))
    assert deeper(files((0, 3), (4, 4), (5, 7)), files((0, 7), (4, 4))) == [(0, "{}", 4, 4, [1, 2])]
    assert deeper(files((0, 3), (2, 9), (8, 9)), files((0, 9), (2, 9))) == [(0, "{}", 3, 8, [1, 2])]


def test_opened_more_follows_rows_to_other_specs() -> None:
    def file(low: int, high: int, buckets: int, bucket: int) -> FileFacts:
        lower, upper = lexicographic_ends([ColumnBounds(low, high)])
        where = f'{{"id_bucket_{buckets}": {bucket}}}'
        return FileFacts(f"{low}-{high} {where}", buckets, where, 1, 1, 1, lower=lower, upper=upper)

    specs = {n: (PartitionField(f"id_bucket_{n}", 1, f"bucket[{n}]"),) for n in (1, 2)}
    # with two buckets, Iceberg's hash puts 0, 1, 2 and 4 into the first one
    split = [file(1, 9, 2, 0), file(0, 8, 2, 1)]
    assert not opened_more([file(0, 9, 1, 0)], split, specs)
    assert not opened_more(split, [file(0, 4, 1, 0), file(5, 9, 1, 0)], specs)
    assert opened_more(split, [file(0, 8, 1, 0), file(1, 9, 1, 0)], specs)[:2] == [(1, 1, 2), (2, 1, 2)]
    beside = [file(1, 3, 2, 0), file(0, 9, 1, 0)]
    assert opened_more([file(0, 9, 1, 0)], beside, specs) == [(1, 1, 2), (2, 1, 2)]


@pytest.mark.services
def test_a_round_of_all_jobs_keeps_tables_correct(lake: Lake, tmp_path: Path) -> None:
    soak = Soak(lake, tmp_path, version=3, seed=7)
    soak.run_jobs(15)
    soak.check()
    assert {outcome.partition(" ")[0] for outcome in soak.outcomes} == set(STEPS)


@pytest.mark.soak
@pytest.mark.parametrize("version", [2, 3])
def test_ten_minutes_of_all_jobs_keep_tables_correct(lake: Lake, tmp_path: Path, version: int) -> None:
    soak = Soak(lake, tmp_path, version, seed=int(os.environ.get("LAKECDC_SEED") or time.time()))
    soak.run_jobs(float(os.environ.get("LAKECDC_SOAK_SECONDS") or 600), lanes=2)
    soak.check()
