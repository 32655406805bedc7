"""Processes write one table on versitygw through a lossy proxy while others read it by its path."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import s3fs
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable

from lakecdc.object_store.versions import HINT
from local_services.readers import ClickHouse
from local_services.s3 import S3Server
from tests.lakecdc.object_store import fault_proxy as faults
from tests.lakecdc.object_store.fault_proxy import FaultProxy, Reply, Request, Send
from tests.lakecdc.object_store.writer import NAME, ROWS_EVERY, SCHEMA
from tests.on_demand import on_demand
from tests.readers import duckdb_connection

pytestmark = pytest.mark.services
IMPLEMENTATION = "lakecdc.object_store.pyiceberg_catalog.ObjectStoreCatalog"
_FAULTS = (faults.drop_answer, faults.drop_request, faults.double, faults.answer_200)
_FAULTY = 0.2
#: from this number of commits on, reached only by tests on demand, ClickHouse also reads
_LONG = 1000


class Reader(threading.Thread):
    """A thread that reads a table repeatedly and stores the counts.

    :param count: returns a number that must never decrease.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self._count, self._end = count, threading.Event()
        self.counts: list[int] = []
        #: how often the hint changed between the client's size check and its read
        self.expired = 0
        self.error: Exception | None = None

    def run(self) -> None:
        seconds = 0.1
        try:
            # the proxy also runs in this process
            while not self._end.wait(2 * seconds):
                begun = time.monotonic()
                self._read()
                seconds = time.monotonic() - begun
        except Exception as error:
            self.error = error

    def _read(self) -> None:
        try:
            self.counts.append(self._count())
        except Exception as error:
            if "FileExpired" not in f"{error!r}" or HINT not in str(error):
                raise
            self.expired += 1

    def end(self) -> None:
        """Read once more and stop."""
        self._end.set()
        self.join(60)
        if self.error:
            raise self.error
        self.counts.append(self._count())
        assert self.counts == sorted(self.counts)


def lossy(draw: random.Random) -> faults.Fault:
    """Return a fault that lets most writes through."""

    def fault(request: Request, send: Send) -> Reply | None:
        return draw.choice(_FAULTS)(request, send) if draw.random() < _FAULTY else send()

    return fault


def by_duckdb(location: str, s3: S3Server) -> Callable[[], int]:
    """Return a function that counts the rows of a table in DuckDB, by the table's folder."""
    account = {"key": s3.access_key, "secret": s3.secret_key, "endpoint_url": s3.endpoint}
    connection = duckdb_connection()
    connection.register_filesystem(s3fs.S3FileSystem(**account, use_listings_cache=False))
    query = f"SELECT count(*) FROM iceberg_scan('{location}')"
    return lambda: int(connection.execute(query).fetchall()[0][0])


def by_clickhouse(location: str, s3: S3Server, click: ClickHouse) -> Callable[[], int]:
    """Return a function that counts the rows of a table in ClickHouse, by the table's folder."""
    table = f"'{s3.endpoint}/{location.removeprefix('s3://')}', '{s3.access_key}', '{s3.secret_key}'"
    return lambda: int(click.table(f"SELECT count(id) AS rows FROM icebergS3({table})")["rows"][0].as_py())


def by_pyiceberg(location: str, s3: S3Server) -> Callable[[], int]:
    """Return a function that counts the visible commits of a table, by the table's folder."""

    def count() -> int:
        # pyarrow reads the hint with its former length, so that 10 after 9 becomes 1
        io = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}
        table = StaticTable.from_metadata(location, {**s3.properties, **io})
        return len(table.properties) + len(table.snapshots())

    return count


def run(processes: int, commits: int, **given: object) -> list[dict[str, int]]:
    """Let processes commit side by side; return their counters."""
    command = [sys.executable, "-m", "tests.lakecdc.object_store.writer"]
    running = [
        subprocess.Popen(
            [*command, json.dumps({**given, "writer": number, "commits": commits // processes})],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    printed = [process.communicate(timeout=1100)[0] for process in running]
    assert [process.returncode for process in running] == [0] * processes
    return [json.loads(text.splitlines()[-1]) for text in printed]


@pytest.mark.parametrize(("processes", "commits"), on_demand([(2, 40), (2, 1000), (4, 1000)], in_ci={(2, 40)}))
def test_no_commit_is_lost_or_duplicated(s3: S3Server, processes: int, commits: int) -> None:
    with ExitStack() as running:
        proxy = running.enter_context(FaultProxy(s3.endpoint))
        warehouse = f"s3://lab/{processes}-{commits}"
        properties = {
            "py-catalog-impl": IMPLEMENTATION,
            "warehouse": warehouse,
            **s3.properties,
            "s3.endpoint": proxy.endpoint,
        }
        # the store is proven before it gets lossy
        catalog = load_catalog("lake", **properties)
        catalog.create_namespace("shop")
        location = catalog.create_table(NAME, SCHEMA).location()
        counts = {"DuckDB": by_duckdb(location, s3), "pyiceberg": by_pyiceberg(location, s3)}
        if commits >= _LONG:
            counts["ClickHouse"] = by_clickhouse(location, s3, running.enter_context(ClickHouse()))
        readers = {name: Reader(count) for name, count in counts.items()}
        for reader in readers.values():
            reader.start()
        proxy.fault, proxy.attempts, begun = lossy(random.Random(commits)), 0, time.monotonic()
        tallies = run(processes, commits, properties=properties, endpoint=s3.endpoint)
        seconds, proxy.fault = time.monotonic() - begun, None
        for reader in readers.values():
            reader.end()
    table = load_catalog("lake", **{**properties, "s3.endpoint": s3.endpoint}).load_table(NAME)
    ids = [f"{writer}-{number}" for writer in range(processes) for number in range(commits // processes)]
    appended = sorted(id for id in ids if int(id.partition("-")[2]) % ROWS_EVERY == 0)
    assert {id for id, value in table.properties.items() if value == "set"} == {*ids} - {*appended}
    assert sorted(str(each.summary and each.summary["id"]) for each in table.snapshots()) == appended
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == appended
    # and the commit that created it
    assert table.metadata_location == f"{location}/metadata/v{commits + 1}.metadata.json"
    everything = len(table.properties) + len(appended)
    for name, reader in readers.items():
        assert reader.counts[-1] == (everything if name == "pyiceberg" else len(appended))
    retries = {name: sum(each[name] for each in tallies) for name in ("refused", "failed")}
    print(
        f"{processes} processes, {commits} commits in {seconds:.0f} s, {proxy.attempts} conditional writes; "
        f"others were first: {retries}; reads by path: "
        f"{ {name: len(reader.counts) for name, reader in readers.items()} }, "
        f"and {sum(reader.expired for reader in readers.values())} of a hint that was being written"
    )
