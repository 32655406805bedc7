"""Measure the full load of a Postgres table: ours, dlt, and the ceiling, a bare ``COPY … TO STDOUT``.

    python -m benchmarks.full_load [--rows 5000000]

The ceiling is the same number of parallel COPYs over the same page ranges with the bytes discarded: the source alone.
Ours is the whole job (slot, snapshot, chunks, Parquet, commit, first read of the log); its first run, on a small table,
warms up the session. dlt loads the same table into Parquet-backed Iceberg through its Arrow backend, from a separate
environment that this script makes below ``build/``. The last line is JSON, in rows per second.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.folders import emptied
from benchmarks.terminal import only_own_lines
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from local_services.paths import reachable_folder
from local_services.postgres import Postgres

_DLT = ("dlt[filesystem,pyiceberg]==1.31.0", "psycopg2-binary", "sqlalchemy<2.1")
_PEER = Path(__file__).with_name("peers") / "dlt_load.py"
_PARALLEL = 2


def fill(dsn: str, table: str, rows: int) -> None:
    """Make a table of 8 columns."""
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute(
            f"CREATE TABLE {table} (id bigint PRIMARY KEY, customer text, email text, status text, "
            "amount numeric(12,2), version bigint, updated_at timestamp, note text)"
        )
        session.execute(
            f"INSERT INTO {table} SELECT i, 'customer ' || mod(i, 100000), md5(i::text) || '@example.org', "
            "(ARRAY['new','paid','sent','done'])[mod(i, 4) + 1], mod(i, 1000000) / 100.0, mod(i, 7), "
            "timestamp '2026-01-01' + i * interval '1 second', md5((i * 7)::text) FROM generate_series(1, %s) AS i",
            (rows,),
        )
        session.execute(f"VACUUM ANALYZE {table}")


def ceiling(dsn: str, table: str) -> float:
    """Return the seconds the source needs to send its rows."""
    with psycopg.connect(dsn) as session:
        row = session.execute("SELECT pg_relation_size(%s::regclass) / 8192", (table,)).fetchone()
    assert row is not None
    step = -(-int(row[0]) // _PARALLEL)

    def copy(part: int) -> int:
        low, high = part * step, (part + 1) * step
        query = f"COPY (SELECT * FROM {table} WHERE ctid >= '({low},0)' AND ctid < '({high},0)') TO STDOUT (FORMAT csv)"
        with psycopg.connect(dsn) as session, session.cursor() as cursor, cursor.copy(query) as rows:
            return sum(len(block) for block in rows)

    began = time.monotonic()
    with ThreadPoolExecutor(_PARALLEL) as pool:
        list(pool.map(copy, range(_PARALLEL)))
    return time.monotonic() - began


def spec(folder: Path, dsn: str, table: str) -> dict[str, Any]:
    """Return the spec of the ingest job that loads a table."""
    return {
        "version": 1,
        "job": "ingest",
        "catalog": {
            "name": "lake",
            "properties": {
                "type": "sql",
                "uri": f"sqlite:///{folder}/catalog.db",
                "warehouse": f"file://{folder}/warehouse",
            },
        },
        "source": {"type": "postgres", "dsn": dsn, "slot": f"bench_{table}", "full_load_parallelism": _PARALLEL},
        "target": {"table": f"bench.{table}", "key": ["id"], "source_table": f"public.{table}"},
    }


def ours(folder: Path, dsn: str, table: str, rows: int) -> float:
    """Return the seconds of an ingest run that loads the table."""
    began = time.monotonic()
    report = run(parse_spec(spec(folder, dsn, table)), ingest)
    seconds = time.monotonic() - began
    assert report.exit_code() == 0, report.tables[0].reason if report.tables else report.error
    metrics = report.tables[0].metrics
    assert (metrics["rows_written"], metrics["full_load_written_by"]) == (rows, "tasks"), metrics
    return seconds


def dlt(folder: Path, uri: str, table: str) -> float:
    """Return the seconds of dlt's pipeline without its imports."""
    home = Path("build/bench/dlt-venv").resolve()
    # isolated: neither PYTHONPATH nor the current folder may expose this project and its packages
    python = [str(home / "bin" / "python"), "-I"]
    if not home.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([*python, "-m", "pip", "install", "-q", *_DLT], check=True)
    command = [*python, str(_PEER), uri, table, str(folder / "dlt")]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder)
    return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/full-load"))
    given = parser.parse_args()
    folder = emptied(given.folder, "warehouse")
    with only_own_lines(folder / "output.log"):
        print(json.dumps(result(measure(folder, given.rows), given.rows)))


def measure(folder: Path, count: int) -> dict[str, float]:
    """Return the seconds of each way to load `count` rows."""
    seconds: dict[str, float] = {}
    data = reachable_folder(folder / "postgres", "lakecdc-bench-") / "data"
    with Postgres(data) as server:
        for table, rows in (("warm", 1000), ("orders", count)):
            fill(server.dsn, table, rows)
        print(f"{count:,} rows are in Postgres")
        ways: dict[str, Callable[[], float]] = {
            "ceiling": lambda: ceiling(server.dsn, "orders"),
            "ours": lambda: ours(folder, server.dsn, "orders", count),
            "dlt": lambda: dlt(folder, server.uri, "orders"),
        }
        ours(folder, server.dsn, "warm", 1000)
        for name, way in ways.items():
            seconds[name] = way()
            print(f"{name}: {seconds[name]:.2f} s")
    return seconds


def result(seconds: dict[str, float], rows: int) -> dict[str, Any]:
    """Return the JSON of the last line.

    :param seconds: seconds of each way.
    :param rows: number of loaded rows.
    """
    rates = {name: round(rows / each) for name, each in seconds.items()}
    return {
        "name": "bench-full-load",
        "ours": rates["ours"],
        "peers": {"ceiling": rates["ceiling"], "dlt": rates["dlt"]},
        "ratio": {name: round(rates["ours"] / rates[name], 2) for name in ("ceiling", "dlt")},
        "unit": "rows/s",
        "rows": rows,
        "seconds": {name: round(each, 2) for name, each in seconds.items()},
        "cores": os.cpu_count(),
    }


if __name__ == "__main__":
    main()
