"""Micro-batches are bounded: a huge transaction and a long backlog need memory independent of their size.

On demand (``make test-soak``), as it takes many minutes. ``LAKECDC_SOAK_ROWS`` is the number of rows of the
transaction, default five million; everything else derives from it.
"""

from __future__ import annotations

import heapq
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import events
from local_services import kafka_jars
from local_services.kafka import Kafka
from local_services.mariadb import MariaDB
from local_services.postgres import Postgres
from tests.conftest import Lake
from tests.e2e.memory import Memory, watched

pytestmark = pytest.mark.soak

ROWS = int(os.environ.get("LAKECDC_SOAK_ROWS", "5000000"))
BATCHES = 24
SCRIPT = Path(__file__).parents[2] / "spark_jobs" / "ingest.py"
# the heap is 1 GiB by default; the rest of the JVM, Python and its task need no more than this
BOUND = 3 * 1024


@dataclass
class Dialect:
    """A server's SQL for the tests.

    :param table: creates it.
    :param insert: rows with the ids ``{first}`` to ``{last}``.
    :param facts: counts, sums of every column, and a hash of the text columns.
    """

    table: str
    insert: str
    facts: str


POSTGRES = Dialect(
    """CREATE TABLE orders (id bigint PRIMARY KEY, customer int, status text, amount numeric(12,2),
    weight double precision, paid boolean, placed timestamptz, note text)""",
    """INSERT INTO orders SELECT i, i % 9973, 'status ' || i % 7, i / 7.0, i * 0.25, i % 3 = 0,
    '2026-01-01 00:00:00+00'::timestamptz + i * interval '1 second', md5(i::text)
    FROM generate_series({first}::bigint, {last}) i""",
    """count(*), sum(id)::text, sum(customer)::text, sum(amount)::text, sum(weight)::bigint, sum(paid::int),
    sum(extract(epoch FROM placed)::bigint)::text,
    sum(('x' || substr(md5(id || status || note), 1, 8))::bit(32)::bigint)::text""",
)
MARIADB = Dialect(
    """CREATE TABLE orders (id bigint PRIMARY KEY, customer int, status text, amount decimal(12,2),
    weight double, paid boolean, placed timestamp, note longtext)""",
    """INSERT INTO orders SELECT seq, seq % 9973, concat('status ', seq % 7), seq / 7.0, seq * 0.25, seq % 3 = 0,
    timestampadd(second, seq, '2026-01-01'), md5(seq) FROM seq_{first}_to_{last}""",
    """count(*), CAST(sum(id) AS CHAR), CAST(sum(customer) AS CHAR), CAST(sum(amount) AS CHAR),
    CAST(sum(weight) AS SIGNED), CAST(sum(paid) AS SIGNED), CAST(CAST(sum(unix_timestamp(placed)) AS SIGNED) AS CHAR),
    CAST(CAST(sum(CAST(conv(substr(md5(concat(id, status, note)), 1, 8), 16, 10) AS UNSIGNED)) AS UNSIGNED) AS CHAR)""",
)
_QUEUED = 50_000
_KEY = re.compile(r'\{"id":(\d+),')
_DUCKDB_FACTS = POSTGRES.facts.replace("('x' ||", "('0x' ||").replace("::bit(32)", "")


@dataclass
class Shop:
    """One table in a real database and its copy in a lake; each run is a separate process.

    :param cursor: cursor of a session at the source in autocommit mode.
    :param source: source of the spec.
    :param target: target of the spec.
    """

    lake: Lake
    folder: Path
    dialect: Dialect
    cursor: Any
    source: dict[str, Any]
    target: dict[str, Any]
    events: int = 0

    def execute(self, *statements: str) -> None:
        """Change rows in one transaction."""
        for statement in ("BEGIN", *statements, "COMMIT"):
            self.cursor.execute(statement)
            self.events += max(0, self.cursor.rowcount)

    def insert(self, first: int, last: int, note: str | None = None) -> None:
        """Insert rows in one transaction.

        :param note: SQL of their last column.
        """
        statement = self.dialect.insert.format(first=first, last=last)
        self.execute(statement.replace("md5(i::text)", note) if note else statement)

    def ingest(self, **source: Any) -> tuple[dict[str, Any], Memory]:
        """Run the job like a user, with Spark's default memory settings; return report and memory."""
        target = {"table": "shop.orders", "partition_by": ["bucket(4, id)"], **self.target}
        return run(self.folder, self.lake.spec("ingest", source={**self.source, **source}, target=target))

    def assert_equal(self) -> None:
        """Compare counts, sums and hashes."""
        self.cursor.execute(f"SELECT {self.dialect.facts} FROM orders")
        expected = self.cursor.fetchone()
        if self.target.get("mode") == "merge":
            assert self.lake.duckdb_rows("shop.orders", _DUCKDB_FACTS) == [expected]
        else:
            assert current_rows(self.lake, "shop.orders", ["id"], _DUCKDB_FACTS) == [expected]


def current_rows(lake: Lake, name: str, key: list[str], columns: str) -> list[tuple[Any, ...]]:
    """Return a table's rows by DuckDB over its files.

    DuckDB's Iceberg reader takes hours for so many equality deletes; here they are a join. A key stays in its
    partition, so that partitions are ignored.
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
            deletes = f"read_parquet({files[2]}, filename = true) JOIN sequence ON filename = path"
            rows += f" LEFT JOIN (SELECT {keys}, max(number) AS gone FROM {deletes} GROUP BY ALL) USING ({keys})"
            rows += " WHERE gone IS NULL OR gone <= number"
        return connection.execute(f"SELECT {columns} FROM {rows}").fetchall()


def run(folder: Path, spec: dict[str, Any]) -> tuple[dict[str, Any], Memory]:
    """Run the script of a spec; return the table's report and the memory."""
    spec_file, report_file = folder / "spec.json", folder / "report.json"
    spec_file.write_text(json.dumps(spec))
    # the JVM's defaults, not the other tests' settings for a short life
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


@contextmanager
def postgres_shop(folder: Path, **target: Any) -> Iterator[Shop]:
    """Open a table in Postgres."""
    with Postgres(folder / "data") as server, psycopg.connect(server.dsn, autocommit=True) as session:
        source = {"type": "postgres", "dsn": server.dsn, "slot": "bounds"}
        target = {"source_table": "public.orders", **target}
        yield Shop(Lake(None, folder), folder, POSTGRES, session.cursor(), source, target)  # type: ignore[arg-type]


@contextmanager
def mariadb_shop(folder: Path, **target: Any) -> Iterator[Shop]:
    """Open a table in MariaDB."""
    with MariaDB(folder / "data") as server:
        with server.connect() as session:
            session.cursor().execute("CREATE DATABASE shop")
        with server.connect(database="shop") as session:
            source = {"type": "mysql", "host": "127.0.0.1", "port": server.port, "user": "root"}
            yield Shop(Lake(None, folder), folder, MARIADB, session.cursor(), source, target)  # type: ignore[arg-type]


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """Yield the table, with few rows, loaded in full; a parameter is the opening function, and its target."""
    opened, target = getattr(request, "param", (postgres_shop, {}))
    folder = Path(tempfile.mkdtemp(prefix="lakecdc-bounds-"))
    folder.chmod(0o755)
    try:
        with opened(folder, **target) as opened_shop:
            opened_shop.execute(opened_shop.dialect.table)
            opened_shop.insert(1, 1000)
            opened_shop.ingest()
            yield opened_shop
    finally:
        if os.environ.get("LAKECDC_SOAK_KEEP"):
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def test_a_huge_transaction_is_ingested_in_bounded_memory(shop: Shop) -> None:
    shop.insert(1001, 1000 + ROWS)
    report, memory = shop.ingest()
    assert report["metrics"]["events_c"] == ROWS
    shop.assert_equal()
    assert memory.peaks()["together"] < BOUND, memory.peaks()
    shop.execute("UPDATE orders SET amount = amount + 1, status = 'changed' WHERE id % 5 = 0")
    shop.execute("DELETE FROM orders WHERE id % 7 = 0")
    report, memory = shop.ingest()
    shop.assert_equal()
    assert memory.peaks()["together"] < BOUND, memory.peaks()


@pytest.mark.parametrize(
    "shop",
    [
        pytest.param((postgres_shop, {}), id="postgres"),
        pytest.param((mariadb_shop, {}), id="mariadb"),
        pytest.param((postgres_shop, {"mode": "merge"}), id="postgres-merge"),
        pytest.param((postgres_shop, {"mode": "history"}), id="postgres-history"),
        pytest.param((postgres_shop, {"history_table": "shop.orders_log"}), id="postgres-upsert-and-history"),
    ],
    indirect=True,
)
def test_a_backlog_drains_in_flat_memory(shop: Shop) -> None:
    size = ROWS // 100
    # a MERGE reads the table, so only a table that does not grow shows the memory of the backlog
    grows = shop.target.get("mode") != "merge"
    if not grows:
        shop.insert(1001, 1000 + BATCHES * size)
        shop.ingest()
    for number in range(BATCHES):
        first = 1001 + number * size
        insert = shop.dialect.insert.format(first=first, last=first + size - 1)
        # as many rows each time, as the cost of a batch depends on its size
        condition = f"id % 10 = {number % 10} AND id >= {first - size}" if grows else f"id % {BATCHES} = {number % 10}"
        shop.execute(*[insert] * grows, f"UPDATE orders SET amount = amount + 1 WHERE {condition}")
    loaded = len(commit_times(shop.lake, "shop.orders"))
    # every transaction is a separate batch
    report, memory = shop.ingest(max_batch_events=size // 2)
    assert report["metrics"]["commits"] >= BATCHES
    log = "shop.orders" if shop.target.get("mode") == "history" else shop.target.get("history_table")
    if log:
        assert current_rows(shop.lake, log, ["id"], "count(*)") == [(shop.events,)]
    if log != "shop.orders":
        shop.assert_equal()
    assert_flat(memory, commit_times(shop.lake, "shop.orders")[loaded:])


def commit_times(lake: Lake, name: str) -> list[float]:
    """Return the commit times of a table in seconds."""
    return [s.timestamp_ms / 1000 for s in lake.pyiceberg().load_table(name).metadata.snapshots]


def assert_flat(memory: Memory, commits: list[float]) -> None:
    """Check that the last quarter of the batches needs no more memory than the second one, when everything is warm."""
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
        shop.insert(1001 + number * size, 1000 + (number + 1) * size, note)
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
    assert (report["metrics"]["commits"], report["metrics"]["decoding"]) == (BATCHES, "one pass")
    assert current_rows(lake, "shop.orders", ["id"], "count(*), sum(version)") == [events.final_state(files)]
    assert_flat(memory, commit_times(lake, "shop.orders"))


@pytest.mark.parametrize("reader", ["librdkafka", "spark"])
def test_a_backlog_of_kafka_drains_in_flat_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{kafka_jars.spark_arguments()} pyspark-shell")
    size, lake = ROWS // 100, Lake(None, tmp_path)  # type: ignore[arg-type]
    events.Writer(ROWS // 50).write(tmp_path / "in", BATCHES * size)
    files = f"{tmp_path}/in/*.jsonl"
    target = {"table": "shop.orders", "key": ["id"], "columns": events.COLUMNS, "source_table": "orders"}
    with Kafka(tmp_path / "kafka") as kafka:
        produce(kafka, "shop.orders", files)
        source: dict[str, Any] = {"type": "kafka", "format": "debezium-json", "topics": ["shop.orders"]}
        source |= {"bootstrap_servers": kafka.bootstrap_servers, "reader": reader, "max_offsets_per_batch": size}
        report, memory = run(tmp_path, lake.spec("ingest", source=source, target=target))
    assert report["metrics"]["commits"] >= BATCHES
    assert report["metrics"]["decoding"] == "one pass"
    assert current_rows(lake, "shop.orders", ["id"], "count(*), sum(version)") == [events.final_state(files)]
    assert_flat(memory, commit_times(lake, "shop.orders")[-BATCHES:])


def timed(line: str) -> tuple[int, str]:
    """Return an event behind its time."""
    return int(line.rpartition('"ts_ms":')[2].rstrip("}\n")), line


def produce(kafka: Kafka, topic: str, files: str) -> None:
    """Send events of files to four partitions, by their keys and in their order."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "queue.buffering.max.messages": 2 * _QUEUED})
    # a file has all events of a key, in order; events of all files are sent in the order of their time
    with ExitStack() as stack:
        lines = [map(timed, stack.enter_context(open(file))) for file in sorted(glob(files))]
        for moment, line in heapq.merge(*lines):
            key = int(_KEY.search(line)[1])  # type: ignore[index]
            producer.produce(topic, line, f'{{"id":{key}}}', key % 4, timestamp=moment)
            if len(producer) > _QUEUED:
                producer.flush(60)
    assert producer.flush(60) == 0
