"""Micro-batches are bounded: one huge transaction and a long backlog go through in memory that does not follow them.

On demand (``make test-soak``), because it takes many minutes. ``LAKECDC_SOAK_ROWS`` says how many rows the transaction
has, default five million; everything else follows from it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import psycopg
import pytest

from benchmarks import events
from local_services.postgres import Postgres
from tests.conftest import Lake
from tests.e2e.memory import Memory, watched

pytestmark = pytest.mark.soak

ROWS = int(os.environ.get("LAKECDC_SOAK_ROWS", "5000000"))
BATCHES = 24
SCRIPT = Path(__file__).parents[2] / "spark_jobs" / "ingest.py"
# the heap is 1 GiB unless it is told otherwise; the rest of the JVM, Python and its task are no more than this
BOUND = 3 * 1024
_TABLE = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer int, status text, amount numeric(12,2), weight double precision,
  paid boolean, placed timestamptz, note text)
"""
_INSERT = """
INSERT INTO orders SELECT i, i % 9973, 'status ' || i % 7, i / 7.0, i * 0.25, i % 3 = 0,
  '2026-01-01 00:00:00+00'::timestamptz + i * interval '1 second', md5(i::text)
FROM generate_series({first}::bigint, {last}) i
"""
# the same in both dialects: counts, sums of every column, and a hash over the text ones
_FACTS = """
count(*), sum(id)::text, sum(customer)::text, sum(amount)::text, sum(weight)::bigint, sum(CASE WHEN paid THEN 1 END),
sum(extract(epoch FROM placed)::bigint)::text, sum({hash})::text
"""
_HASH = "('x' || substr(md5(id || status || note), 1, 8))::bit(32)::bigint"
_DUCKDB_HASH = "('0x' || substr(md5(id || status || note), 1, 8))::bigint"


@dataclass
class Shop:
    """One table in a real Postgres and its copy in a lake; each run is a process of its own."""

    lake: Lake
    folder: Path
    session: psycopg.Connection[tuple[Any, ...]]
    dsn: str

    def insert(self, first: int, last: int) -> None:
        """One transaction of new rows."""
        self.session.execute(_INSERT.format(first=first, last=last).encode())

    def ingest(self, **source: Any) -> tuple[dict[str, Any], Memory]:
        """Run the job as its users do, with Spark's own memory settings; report and memory."""
        document = {"type": "postgres", "dsn": self.dsn, "slot": "bounds", **source}
        target = {"table": "shop.orders", "source_table": "public.orders", "partition_by": ["bucket(4, id)"]}
        return run(self.folder, self.lake.spec("ingest", source=document, target=target))

    def assert_equal(self) -> None:
        """Compare counts, sums and hashes."""
        expected = self.session.execute(f"SELECT {_FACTS.format(hash=_HASH)} FROM orders".encode()).fetchone()
        assert current_rows(self.lake, "shop.orders", ["id"], _FACTS.format(hash=_DUCKDB_HASH)) == [expected]


def current_rows(lake: Lake, name: str, key: list[str], columns: str) -> list[tuple[Any, ...]]:
    """What a table shows, by DuckDB over its files.

    DuckDB's own Iceberg reader takes hours for so many equality deletes; here they are a join. A key stays in its
    partition, so that partitions need not be looked at.
    """
    entries = lake.pyiceberg().load_table(name).inspect.entries().to_pylist()
    files: dict[int, list[str]] = {0: [], 2: []}
    sequence = {}
    for entry in entries:
        if entry["status"] != 2:
            path = unquote(urlsplit(entry["data_file"]["file_path"]).path)
            files[entry["data_file"]["content"]].append(path)
            sequence[path] = entry["sequence_number"]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone='UTC'")
        connection.execute("SET memory_limit='2GB'")
        connection.execute("CREATE TABLE sequence (path text, number bigint)")
        connection.executemany("INSERT INTO sequence VALUES (?, ?)", [*sequence.items()])
        rows = f"(SELECT * FROM read_parquet({files[0]}, filename = true) JOIN sequence ON filename = path) f"
        if files[2]:
            keys = ", ".join(key)
            gone = f"read_parquet({files[2]}, filename = true) JOIN sequence ON filename = path"
            rows += f" LEFT JOIN (SELECT {keys}, max(number) AS gone FROM {gone} GROUP BY ALL) USING ({keys})"
            rows += " WHERE gone IS NULL OR gone <= number"
        return connection.execute(f"SELECT {columns} FROM {rows}").fetchall()


def run(folder: Path, spec: dict[str, Any]) -> tuple[dict[str, Any], Memory]:
    """Run the script of a spec; the table's report and the memory."""
    spec_file, report_file = folder / "spec.json", folder / "report.json"
    spec_file.write_text(json.dumps(spec))
    # the JVM as it comes, not as the other tests make it short-lived
    environment = {k: v for k, v in os.environ.items() if k not in ("JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")}
    environment |= {"SPARK_MASTER": "local[2]", "SPARK_LOCAL_DIRS": str(folder / "spark")}
    command = [sys.executable, str(SCRIPT), "--spec", str(spec_file), "--report", str(report_file)]
    began = time.time()
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stderr=log)
    with watched(process.pid) as memory:
        process.wait()
    report = json.loads(report_file.read_text())
    print(f"\n{time.time() - began:.0f} s, MiB {memory.peaks()}, {json.dumps(report)}")
    assert not report.get("error"), report
    (table,) = report["tables"]
    assert table["outcome"] == "done", table
    return table, memory


@pytest.fixture
def shop() -> Iterator[Shop]:
    """The table, with few rows, loaded in full."""
    folder = Path(tempfile.mkdtemp(prefix="lakecdc-bounds-"))
    folder.chmod(0o755)
    try:
        with Postgres(folder / "data") as server, psycopg.connect(server.dsn, autocommit=True) as session:
            session.execute(_TABLE)
            found = Shop(Lake(None, folder), folder, session, server.dsn)  # type: ignore[arg-type]
            found.insert(1, 1000)
            found.ingest()
            found.assert_equal()
            yield found
    finally:
        if os.environ.get("LAKECDC_SOAK_KEEP"):
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def test_a_huge_transaction_goes_through(shop: Shop) -> None:
    shop.insert(1001, 1000 + ROWS)
    report, memory = shop.ingest()
    assert report["metrics"]["events_c"] == ROWS
    shop.assert_equal()
    assert memory.peaks()["together"] < BOUND, memory.peaks()
    shop.session.execute("UPDATE orders SET amount = amount + 1, status = 'changed' WHERE id % 5 = 0")
    shop.session.execute("DELETE FROM orders WHERE id % 7 = 0")
    report, memory = shop.ingest()
    shop.assert_equal()
    assert memory.peaks()["together"] < BOUND, memory.peaks()


def test_a_backlog_drains_in_flat_memory(shop: Shop) -> None:
    size = ROWS // 100
    for number in range(BATCHES):
        with shop.session.transaction():
            shop.insert(1001 + number * size, 1000 + (number + 1) * size)
            shop.session.execute(f"UPDATE orders SET amount = amount + 1 WHERE id % 10 = {number % 10}".encode())
    # one insert and some updates each: every transaction is a batch of its own
    report, memory = shop.ingest(max_batch_events=size // 2)
    assert report["metrics"]["commits"] >= BATCHES
    shop.assert_equal()
    assert_flat(memory, commit_times(shop.lake, "shop.orders")[-BATCHES:])


def commit_times(lake: Lake, name: str) -> list[float]:
    """Wall-clock seconds of a table's commits."""
    return [s.timestamp_ms / 1000 for s in lake.pyiceberg().load_table(name).metadata.snapshots]


def assert_flat(memory: Memory, commits: list[float]) -> None:
    """The last quarter of the batches takes no more memory than the second one, which has everything warm."""
    quarter = len(commits) // 4
    edges = [commits[quarter], commits[2 * quarter], commits[-quarter], commits[-1]]
    for kind in ("driver", "jvm", "workers"):
        second, last = memory.peak(kind, *edges[:2]), memory.peak(kind, *edges[2:])
        print(f"{kind}: {second:.0f} MiB in the second quarter, {last:.0f} MiB in the last")
        assert 0 < last < 1.1 * second + 50, (kind, second, last)


def test_a_backlog_of_large_rows_drains_in_flat_memory(shop: Shop) -> None:
    size = max(1, ROWS // 100_000)
    note = "substr(repeat(md5(i::text), 32768), 1, 1000000)"
    for number in range(BATCHES):
        insert = _INSERT.format(first=1001 + number * size, last=1000 + (number + 1) * size)
        shop.session.execute(insert.replace("md5(i::text)", note).encode())
    report, memory = shop.ingest(max_batch_bytes=size * 900_000)
    assert report["metrics"]["commits"] == BATCHES
    shop.assert_equal()
    assert memory.peaks()["together"] < BOUND, memory.peaks()
    assert_flat(memory, commit_times(shop.lake, "shop.orders")[-BATCHES:])


def test_a_backlog_of_files_drains_in_flat_memory(tmp_path: Path) -> None:
    lake, writer = Lake(None, tmp_path), events.Writer(ROWS // 50)  # type: ignore[arg-type]
    sizes = [writer.write(tmp_path / "in" / f"{number:02}", ROWS // 100).bytes for number in range(BATCHES)]
    files = f"{tmp_path}/in/*/*.jsonl"
    source = {"type": "files", "path": files, "format": "debezium-json", "max_batch_bytes": int(1.5 * max(sizes))}
    target = {"table": "shop.orders", "key": ["id"], "columns": events.COLUMNS, "source_table": "orders"}
    report, memory = run(tmp_path, lake.spec("ingest", source=source, target=target))
    assert (report["metrics"]["commits"], report["metrics"]["decoded_by"]) == (BATCHES, "native")
    assert current_rows(lake, "shop.orders", ["id"], "count(*), sum(version)") == [events.final_state(files)]
    assert_flat(memory, commit_times(lake, "shop.orders"))
