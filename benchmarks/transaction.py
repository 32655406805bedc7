"""Measure how fast the log of a large transaction is applied.

    python -m benchmarks.transaction [--source mysql] [--kind history] [--inserts 1000000] [--updates 500000]

One transaction inserts rows into a loaded table of 8 columns in 4 buckets, another one updates some of them. Each is
one round of the log: read, decoded, folded to the last event of each key, written as data and equality-delete files,
and committed. The first transactions are small and warm it up. The ceiling is the source alone: its own client
(``pg_recvlogical``, ``mariadb-binlog``) reads the same log and discards it. The last line is JSON, in rows per second;
``core_seconds`` are those of the driver, its JVM and the tasks.

Kinds: ``plain``; ``octets``, a column of bytes; ``large``, values of 3 KB that the updates leave out (Postgres);
``history``, a change log beside the table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks.folders import emptied
from benchmarks.terminal import only_own_lines
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from local_services.mariadb import MariaDB, program_path
from local_services.paths import reachable_folder
from local_services.postgres import Postgres

_TABLE = """CREATE TABLE {table} (id bigint PRIMARY KEY, customer varchar(40), email varchar(80), status varchar(8),
amount numeric(12,2), version bigint, updated_at {datetime}, note {note})"""
_INSERT = """INSERT INTO {table} SELECT i, concat('customer ', mod(i, 100000)), concat(md5({text}), '@example.org'),
substr('new paidsentdone', 1 + 4 * mod(i, 4), 4), mod(i, 1000000) / 100.0, mod(i, 7), {datetime}, {value}
FROM {series}"""
_UPDATE = "UPDATE {table} SET status = 'back', version = version + 1{more} WHERE id > {first}"
_SERVERS = ("postgres", "mariadbd", "mysqld")
_WARM = 1000
_TABLE_NAME = "bench.ours"


@dataclass(frozen=True)
class Kind:
    """The contents of the rows.

    :param note: type of a column.
    :param value: its values.
    :param more: additional assignments of the updates.
    :param target: settings of the target.
    """

    note: str = "varchar(40)"
    value: str = "md5({text})"
    more: str = ", note = md5(note)"
    target: tuple[str, ...] = ()


_KINDS = {
    "plain": Kind(),
    "octets": Kind("{octets}", "{unhex}", ""),
    "large": Kind("text", "(SELECT string_agg(md5({text} || j), '') FROM generate_series(1, 100) AS j)", ""),
    "history": Kind(target=("history_table",)),
}


@dataclass(frozen=True)
class Source:
    """A running server.

    :param statement: runs a statement in its own transaction.
    :param settings: source settings in the spec that feeds a table.
    :param end: returns the end of the log, for ``discard``.
    :param discard: reads the log from one position to another and discards it.
    """

    words: dict[str, str]
    series: str
    statement: Callable[[str], Any]
    settings: Callable[[str], dict[str, Any]]
    end: Callable[[], str]
    discard: Callable[[str, str], Any]
    kind: Kind = _KINDS["plain"]

    def create(self, table: str) -> None:
        """Make a table with a few rows."""
        self.statement(
            _TABLE.format(table=table, datetime=self.words["type"], note=self.kind.note.format(**self.words))
        )
        self.insert(table, 1, _WARM)

    def update(self, table: str, first: int) -> None:
        """Update rows in one transaction."""
        self.statement(_UPDATE.format(table=table, first=first, more=self.kind.more))

    def insert(self, table: str, first: int, last: int) -> None:
        """Insert rows in one transaction."""
        words = {**self.words, "series": self.series.format(first, last)}
        words["value"] = self.kind.value.format(**words).format(**words)
        self.statement(_INSERT.format(table=table, **words))


@contextmanager
def postgres(folder: Path) -> Iterator[Source]:
    """Start a Postgres; each table has its own slot, and one more is for the ceiling."""
    with Postgres(reachable_folder(folder / "postgres", "lakecdc-bench-") / "data") as server:

        def statement(sql: str) -> Any:
            with psycopg.connect(server.dsn, autocommit=True) as session:
                cursor = session.execute(sql.encode())
                return cursor.fetchone() if cursor.description else None

        def discard(_begin: str, end: str) -> None:
            client = shutil.which("pg_recvlogical")
            assert client, "pg_recvlogical is not installed"
            options = ["-o", "proto_version=1", "-o", "publication_names=ceiling", "--no-loop", "-f", "/dev/null"]
            command = [client, "-d", server.dsn, "--slot", "ceiling", "--start", "--endpos", end, *options]
            subprocess.run(command, check=True, capture_output=True)
            statement("SELECT pg_replication_slot_advance('ceiling', pg_current_wal_flush_lsn())")

        words = {"type": "timestamp", "text": "i::text", "datetime": "timestamp '2026-01-01' + i * interval '1 s'"}
        words |= {"octets": "bytea", "unhex": "sha512(i::text::bytea)"}
        source = Source(
            words,
            "generate_series({}, {}) AS i",
            statement,
            lambda table: {"type": "postgres", "dsn": server.dsn, "slot": table},
            lambda: str(statement("SELECT pg_current_wal_flush_lsn()::text")[0]),
            discard,
        )
        statement("CREATE PUBLICATION ceiling FOR ALL TABLES")
        statement("SELECT pg_create_logical_replication_slot('ceiling', 'pgoutput')")
        yield source


@contextmanager
def mysql(folder: Path) -> Iterator[Source]:
    """Start a MariaDB."""
    large = {"innodb-buffer-pool-size": "256M"}
    with MariaDB(reachable_folder(folder / "mariadb", "lakecdc-bench-") / "data", settings=large) as server:

        def statement(sql: str) -> Any:
            with server.connect() as session, session.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetchone()

        def discard(begin: str, _end: str) -> None:
            file, position = begin.split(":")
            login = ["--read-from-remote-server", "--host=127.0.0.1", f"--port={server.port}", "--user=root"]
            command = [program_path("mariadb-binlog"), "--no-defaults", *login, "--to-last-log", "--raw"]
            subprocess.run([*command, f"--start-position={position}", file], check=True, cwd=folder)

        def end() -> str:
            file, position, *_ = statement("SHOW MASTER STATUS")
            return f"{file}:{position}"

        source = Source(
            {
                **{"type": "datetime(6)", "text": "i", "datetime": "'2026-01-01' + INTERVAL i SECOND"},
                **{"octets": "varbinary(64)", "unhex": "unhex(sha2(i, 512))"},
            },
            "(SELECT seq AS i FROM bench.seq_{}_to_{}) AS s",
            statement,
            lambda _table: {"type": "mysql", "host": "127.0.0.1", "port": server.port, "user": "root"},
            end,
            discard,
        )
        statement("CREATE DATABASE bench")
        yield source


def core_seconds() -> float:
    """Return the seconds used by driver, JVM and tasks until now."""
    me, used = psutil.Process(), 0.0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            # a parent's figures include those of its ended children
            used += 0 if process.name() in _SERVERS else sum(process.cpu_times()[:4])
    return used


def feed(folder: Path, source: Source) -> tuple[float, float]:
    """Return the seconds and core-seconds of a run that feeds one table."""
    uri = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    spec: dict[str, Any] = {
        "version": 1,
        "job": "ingest",
        "catalog": {"name": "lake", "properties": {"type": "sql", **uri}},
        "source": {**source.settings("ours"), "max_batch_events": 100_000_000, "max_batch_bytes": 0},
        "target": {
            **{"table": _TABLE_NAME, "source_table": _TABLE_NAME, "partition_by": ["bucket(4, id)"]},
            **dict.fromkeys(source.kind.target, f"{_TABLE_NAME}_log"),
        },
    }
    began, used = time.monotonic(), core_seconds()
    report = run(parse_spec(spec), ingest)
    seconds, used = time.monotonic() - began, core_seconds() - used
    assert report.exit_code() == 0, report.tables[0].reason if report.tables else report.error
    return seconds, used


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds `work` takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def measure(folder: Path, source: Source, inserts: int, updates: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Return seconds and core-seconds by transaction, of ours and of the ceiling."""
    first, last = 2 * _WARM + 1, 2 * _WARM + inserts
    source.create(_TABLE_NAME)
    feed(folder, source)
    source.insert(_TABLE_NAME, _WARM + 1, 2 * _WARM)
    source.update(_TABLE_NAME, 0)
    feed(folder, source)
    begin = source.end()
    source.insert(_TABLE_NAME, first, last)
    ceiling = timed(partial(source.discard, begin, source.end())), 0.0
    inserted = feed(folder, source)
    print(f"{inserts:,} inserts in {inserted[0]:.2f} s")
    source.update(_TABLE_NAME, last - updates)
    updated = feed(folder, source)
    print(f"{updates:,} updates in {updated[0]:.2f} s")
    return {"inserts": {"ceiling": ceiling, "ours": inserted}, "updates": {"ours": updated}}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", choices=("postgres", "mysql"), default="postgres")
    parser.add_argument("--kind", choices=_KINDS, default="plain")
    parser.add_argument("--inserts", type=int, default=1_000_000)
    parser.add_argument("--updates", type=int, default=500_000)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/transaction"))
    given = parser.parse_args()
    folder = emptied(given.folder, "warehouse")
    with only_own_lines(folder / "output.log"):
        with {"postgres": postgres, "mysql": mysql}[given.source](folder) as source:
            if given.source == "postgres":
                source.statement("CREATE SCHEMA bench")
            costs = measure(folder, replace(source, kind=_KINDS[given.kind]), given.inserts, given.updates)
        print(json.dumps(result(given, costs)))


def result(given: argparse.Namespace, costs: dict[str, dict[str, tuple[float, float]]]) -> dict[str, Any]:
    """Return the JSON of the last line.

    :param given: the arguments.
    :param costs: seconds and core-seconds by transaction, of ours and of the ceiling.
    """
    rows = {"inserts": given.inserts, "updates": given.updates}
    rates = {what: {way: round(rows[what] / each[0]) for way, each in ways.items()} for what, ways in costs.items()}
    used = {what: {way: round(each[1], 1) for way, each in ways.items() if each[1]} for what, ways in costs.items()}
    inserts = rates["inserts"]
    return {
        "name": "bench-transaction",
        "source": given.source,
        "kind": given.kind,
        "ours": inserts["ours"],
        "peers": {"ceiling": inserts["ceiling"]},
        "ratio": {"ceiling": round(inserts["ours"] / inserts["ceiling"], 2)},
        "updates": rates["updates"],
        "unit": "rows/s",
        "rows": rows,
        "seconds": {what: {w: round(s[0], 2) for w, s in ways.items()} for what, ways in costs.items()},
        "core_seconds": used,
        "cores": os.cpu_count(),
    }


if __name__ == "__main__":
    main()
