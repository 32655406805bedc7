"""Measure commits, listings and loads of catalogs: an object store alone, SQLite, Postgres and Iceberg's REST server.

    python -m benchmarks.catalog [--tables 200] [--seconds 4] [--writers 1,2,4] [--contenders object_store_s3,sqlite_s3]
        [--files 1000000]

All clients are pyiceberg's, and each writer is a process. A commit sets a property of one table, or of 50 in turn,
each writer starting at a different one. A commit that loses a race is retried and counted, except inside the REST
server. Then tables are created, listed and loaded, one after the other. With ``--files`` a query for one key is planned
in a table of that many data files (metadata only) by pyiceberg, and by Spark where tables are in a folder. Requests to
S3 come from the server's log and include all clients. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import OperationalError

from benchmarks.deletes import costs
from benchmarks.folders import emptied
from benchmarks.large_table import append_files
from benchmarks.terminal import only_own_lines
from lakecdc.contract.runtime import OBJECT_STORE
from lakecdc.contract.spec import Catalog as SparkCatalog
from lakecdc.object_store.pyiceberg_catalog import ObjectStoreCatalog
from lakecdc.object_store.storage import Answer
from lakecdc.object_store.versions import number_of
from lakecdc.runtime.session import open_session
from local_services.iceberg_rest import IcebergRest
from local_services.paths import reachable_folder
from local_services.postgres import Postgres
from local_services.s3 import S3Server

_OURS = {"py-catalog-impl": "lakecdc.object_store.pyiceberg_catalog.ObjectStoreCatalog"}
_SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
_MANY = 50
_CONTENDERS = "object_store_s3,sqlite_s3,postgres_s3,rest_s3,object_store_folder,sqlite_folder"


class LoggedS3(S3Server):
    """Count the requests that an S3 server receives."""

    @property
    def _requests(self) -> Path:
        return self.folder.with_name("requests.log")

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        program, *rest = super().command()
        return [program, "--access-log", str(self._requests), *rest]

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Count the requests within a ``with`` block by their names in S3."""
        counts, before = Counter[str](), len(self._lines())
        yield counts
        # the log is written after the answers
        time.sleep(0.5)
        counts.update(name for line in self._lines()[before:] for name in re.findall(r" s3_(\w+) ", line)[:1])

    def _lines(self) -> list[str]:
        return self._requests.read_text().splitlines() if self._requests.exists() else []


@dataclass(frozen=True)
class Contender:
    """A catalog.

    :param s3: server of its tables; None if they are in a folder.
    """

    properties: Mapping[str, str]
    s3: LoggedS3 | None

    def open(self) -> Catalog:
        """Open the catalog like a new process."""
        return load_catalog("lake", **self.properties)

    def make(self, namespace: str, tables: int) -> float:
        """Create tables and return the seconds it takes."""
        catalog, begun = self.open(), time.monotonic()
        catalog.create_namespace(namespace)
        for number in range(tables):
            catalog.create_table((namespace, f"t{number}"), _SCHEMA)
        return time.monotonic() - begun

    def requests(self, work: Callable[[], int]) -> dict[str, float]:
        """Return the S3 requests per piece of work, by name.

        :param work: returns the number of pieces.
        """
        if self.s3 is None:
            work()
            return {}
        with self.s3.counted() as counts:
            pieces = work()
        return {name: round(number / pieces, 2) for name, number in sorted(counts.items())}


def count_refusals(catalog: Catalog) -> list[int]:
    """Count commits to an object store that were refused because another writer won.

    :return: a list whose only item is the count so far.
    """
    refused = [0]
    if isinstance(catalog, ObjectStoreCatalog):
        storage = catalog._catalog._storage
        create = storage.create

        def counted(location: str, body: bytes) -> Answer:
            answer = create(location, body)
            refused[0] += answer is Answer.REFUSED and number_of(location) is not None
            return answer

        storage.create = counted  # type: ignore[method-assign]
    return refused


def write(properties: Mapping[str, str], tables: int, seconds: float, number: int, ready: Any, done: Any) -> None:
    """Commit until the time is over, in one writer process.

    :param number: writer number.
    :param ready: barrier of all writers.
    :param done: queue that receives commits, retries and seconds.
    """
    catalog = load_catalog("lake", **properties)
    loaded = [catalog.load_table(("commits", f"t{each}")) for each in range(tables)]
    refused, commits, retries = count_refusals(catalog), 0, 0
    ready.wait()
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        place = (commits + number * (tables // 4)) % tables
        try:
            loaded[place].transaction().set_properties({f"writer-{number}": str(commits)}).commit_transaction()
            commits += 1
        # SQLite stopped waiting for its lock
        except (CommitFailedException, OperationalError):
            retries += 1
            loaded[place] = catalog.load_table(loaded[place].name())
    done.put((commits, retries + refused[0], time.monotonic() - begun))


def commits(contender: Contender, tables: int, writers: int, seconds: float) -> dict[str, Any]:
    """Let several writers commit to tables concurrently."""
    processes = multiprocessing.get_context("spawn")
    ready, done = processes.Barrier(writers), processes.Queue()
    given = [(dict(contender.properties), tables, seconds, number, ready, done) for number in range(writers)]
    running = [processes.Process(target=write, args=each, daemon=True) for each in given]
    for each in running:
        each.start()
    results = [done.get(timeout=120 + seconds) for _ in running]
    for each in running:
        each.join()
    rate = sum(number / elapsed for number, _, elapsed in results)
    committed = sum(number for number, _, _ in results)
    retries = sum(number for _, number, _ in results)
    return {"a_second": round(rate, 1), "retries_a_commit": round(retries / max(committed, 1), 2), "commits": committed}


def load(contender: Contender, tables: int) -> dict[str, Any]:
    """Create, list and load tables."""
    measured: dict[str, Any] = {"create_ms": round(contender.make("loads", tables) / tables * 1000, 1)}
    catalog = contender.open()

    def listed() -> int:
        begun = time.monotonic()
        assert len(catalog.list_tables("loads")) == tables
        measured["list_seconds"] = round(time.monotonic() - begun, 3)
        return 1

    def loaded() -> int:
        begun = time.monotonic()
        for number in range(tables):
            catalog.load_table(("loads", f"t{number}"))
        measured["load_ms"] = round((time.monotonic() - begun) / tables * 1000, 1)
        return tables

    measured["requests_to_list"] = contender.requests(listed)
    measured["requests_to_load"] = contender.requests(loaded)
    table = catalog.load_table("loads.t0")

    def committed() -> int:
        for number in range(_MANY):
            table.transaction().set_properties(number=str(number)).commit_transaction()
        return _MANY

    measured["requests_to_commit"] = contender.requests(committed)
    return measured


def plan(contender: Contender, files: int) -> dict[str, Any]:
    """Create a table of nonexistent data files and plan a query for one key."""
    catalog, measured = contender.open(), dict[str, Any]()
    catalog.create_namespace("plans")
    append_files(catalog.create_table("plans.large", _SCHEMA), files)

    def planned() -> int:
        with costs() as cost:
            tasks = contender.open().load_table("plans.large").scan("id = 1").plan_files()
            assert len(list(tasks)) == 1
        measured["pyiceberg"] = {"seconds": cost.seconds, "core_seconds": cost.core_seconds}
        return 1

    measured["requests"] = contender.requests(planned)
    if contender.s3 is None:
        measured["spark"] = plan_in_spark(contender)
    return measured


def plan_in_spark(contender: Contender) -> dict[str, Any]:
    """Plan the query of :func:`plan` in Spark and time the second run of the session."""
    given = {name: value for name, value in contender.properties.items() if name != "py-catalog-impl"}
    opened = SparkCatalog(f"lake_{uuid.uuid4().hex[:8]}", {"type": OBJECT_STORE, **given})
    spark = open_session(opened, "bench-catalog")
    for _ in range(2):
        with costs() as cost:
            # splits of the one file
            assert spark.sql(f"SELECT * FROM {opened.name}.plans.large WHERE id = 1").rdd.getNumPartitions() < 10
    return {"seconds": cost.seconds, "core_seconds": cost.core_seconds}


def contenders(folder: Path, names: Sequence[str], stack: ExitStack) -> Iterator[tuple[str, Contender]]:
    """Yield catalogs, each with its own warehouse, and start the servers they need."""
    s3 = stack.enter_context(LoggedS3(folder / "s3" / "buckets"))
    for name in names:
        kind, _, place = name.rpartition("_")
        bucket = name.replace("_", "-")
        if place == "s3":
            s3.create_bucket(bucket)
        else:
            (folder / bucket).mkdir()
        warehouse = {"warehouse": f"s3://{bucket}/lake", **s3.properties}
        if place != "s3":
            warehouse = {"warehouse": f"file://{folder}/{bucket}"}
        if kind == "object_store":
            properties = {**_OURS, **warehouse}
        elif kind == "sqlite":
            properties = {"type": "sql", "uri": f"sqlite:///{folder}/{bucket}.db", **warehouse}
        elif kind == "postgres":
            server = stack.enter_context(Postgres(reachable_folder(folder, "lakecdc-bench-") / "postgres"))
            uri = server.uri.replace("postgresql:", "postgresql+psycopg2:")
            properties = {"type": "sql", "uri": uri, **warehouse}
        else:
            rest = stack.enter_context(IcebergRest(folder / "rest", s3 if place == "s3" else None, bucket=bucket))
            properties = rest.properties
        yield name, Contender(properties, s3 if place == "s3" else None)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=200, help="listed and loaded; up to 10,000")
    parser.add_argument("--files", type=int, default=0, help="data files of a table to plan a query of")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement of commits")
    parser.add_argument("--writers", default="1,2,4", help="numbers of processes")
    parser.add_argument("--contenders", default=_CONTENDERS)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/catalog"))
    given = parser.parse_args()
    folder, results = emptied(given.folder, "s3"), dict[str, Any]()
    with only_own_lines(folder / "output.log"), ExitStack() as stack:
        for name, contender in contenders(folder, given.contenders.split(","), stack):
            contender.make("commits", _MANY)
            results[name] = load(contender, given.tables)
            print(f"{name}: {results[name]}")
            if given.files:
                results[name]["plan"] = plan(contender, given.files)
                print(f"{name}, a table of {given.files:,} data files: {results[name]['plan']}")
            for tables in (1, _MANY):
                for writers in map(int, given.writers.split(",")):
                    measured = commits(contender, tables, writers, given.seconds)
                    results[name][f"{writers}_writers_{tables}_tables"] = measured
                    print(f"{name}, {writers} writers, {tables} tables: {measured}")
        facts = {"tables": given.tables, "files": given.files, "seconds": given.seconds, "cores": os.cpu_count()}
        print(json.dumps({"name": "bench-catalog", **results, **facts}))


if __name__ == "__main__":
    main()
