"""Debezium events of an orders table, the same for everybody who is measured."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: columns and Spark SQL types of the table
COLUMNS = {
    "id": "bigint",
    "customer": "string",
    "email": "string",
    "status": "string",
    "amount": "decimal(12,2)",
    "version": "bigint",
    "updated_at": "timestamp_ntz",
    "note": "string",
}
_SECONDS = 1_750_000_000


@dataclass(frozen=True)
class Events:
    """A folder of event files.

    :param files: a glob.
    :param count: number of events.
    :param bytes: their size.
    """

    files: str
    count: int
    bytes: int


def write(folder: Path, count: int, keys: int, *, first: int = 0, per_file: int = 50_000) -> Events:
    """Write events: a quarter inserts, the rest updates and one tenth deletes, over random keys.

    :param first: number of the first event, so that batches follow each other.
    :param per_file: events a file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng, size = random.Random(first + count), 0
    for start in range(first, first + count, per_file):
        end = min(start + per_file, first + count)
        text = "".join(_event(rng, number, keys) for number in range(start, end))
        (folder / f"part-{start:010d}.jsonl").write_text(text)
        size += len(text)
    return Events(f"{folder}/*.jsonl", count, size)


def _event(rng: random.Random, number: int, keys: int) -> str:
    key, op = rng.randrange(keys), rng.choices("cud", (25, 65, 10))[0]
    row: dict[str, Any] = {
        "id": key,
        "customer": f"customer-{key % 5000}",
        "email": f"user{key}@example.com",
        "status": rng.choice(("new", "paid", "sent", "returned")),
        "amount": rng.randrange(100_000) / 100,
        "version": number,
        "updated_at": f"2026-01-01T{number % 24:02d}:{number % 60:02d}:00.{number % 1_000_000:06d}",
        "note": "n" * rng.randrange(40),
    }
    source: dict[str, Any] = {
        "connector": "postgresql",
        "db": "shop",
        "schema": "shop",
        "table": "orders",
        "snapshot": "false",
    }
    source |= {"lsn": 1000 + number * 8, "ts_ms": _SECONDS * 1000 + number}
    source["sequence"] = json.dumps([str(996 + number * 8), str(1000 + number * 8)])
    images = {"before": row if op == "d" else None, "after": None if op == "d" else row}
    return json.dumps({**images, "source": source, "op": op, "ts_ms": _SECONDS * 1000 + number}) + "\n"


def final_state(files: str) -> tuple[int, int]:
    """Rows that remain, and the sum of their versions, found by an engine that is no part of the race."""
    import duckdb

    image = "'STRUCT(id BIGINT, version BIGINT)'"
    columns = f"before: {image}, after: {image}, op: 'VARCHAR', source: 'STRUCT(lsn BIGINT)'"
    found = duckdb.execute(
        f"""SELECT count(*), sum(version) FROM (
          SELECT arg_max(op, source.lsn) AS op, arg_max("after".version, source.lsn) AS version
          FROM read_ndjson('{files}', columns = {{{columns}}})
          GROUP BY coalesce("after".id, "before".id)) WHERE op != 'd'"""
    ).fetchone()
    assert found is not None
    return int(found[0]), int(found[1])
