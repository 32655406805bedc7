"""Write the same change events of an orders table for every contender."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.encodings import ENCODINGS

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
# share of events that update an existing row and of those that delete one; the others insert or snapshot a row
_UPDATES, _DELETES = 0.25, 0.05
# larger than any key of a row
_OTHER_KEYS = 10**9
# Flink splits larger files and reads the splits in any order
_EVENTS_PER_FILE = 50_000


@dataclass(frozen=True)
class Events:
    """A folder of event files.

    :param files: a glob.
    :param count: number of events.
    :param bytes: total size.
    """

    files: str
    count: int
    bytes: int


class Writer:
    """Write sets of events; the source's rows persist between sets.

    All events of a key are in one file of a set, in order, as in a partition of a topic: a reader that reads files in
    any order, as Flink does, needs that.

    :param keys: keys of the rows.
    :param format_name: format of the events.
    :ivar moved: share of events that move a row to an unused key; Debezium only.
    """

    def __init__(self, keys: int, format_name: str = "debezium-json") -> None:
        self.keys, self._number, self._rng = keys, 0, random.Random(7)
        self.moved = 0.0
        self._encoding = ENCODINGS[format_name]
        self._rows: dict[int, str] = {}
        self._order: list[int] = []
        self._place: dict[int, int] = {}

    def write(self, folder: Path, count: int) -> Events:
        """Write the next set.

        :param count: number of events.
        """
        folder.mkdir(parents=True, exist_ok=True)
        names = [folder / f"part-{n:03d}.jsonl" for n in range(max(1, -(-count // _EVENTS_PER_FILE)))]
        with ExitStack() as stack:
            files: list[IO[str]] = [stack.enter_context(name.open("w")) for name in names]
            for _ in range(count):
                key, line = self._event()
                files[key % len(files)].write(line)
        return Events(f"{folder}/*.jsonl", count, sum(name.stat().st_size for name in names))

    def _event(self) -> tuple[int, str]:
        chance = self._rng.random()
        if self._order and chance < _UPDATES + _DELETES:
            key = self._order[int(self._rng.random() * len(self._order))]
            op = "d" if chance < _DELETES else "u"
        else:
            key = int(self._rng.random() * self.keys)
            op = "r" if key in self._rows else "c"
        if op == "d" and not self._encoding.deletes:
            op = "u"
        before = self._rows.get(key, "null")
        if self.moved and self._order and self._rng.random() < self.moved:
            key, op = self._order[int(self._rng.random() * len(self._order))], "u"
            before = f'{{"id":{key + _OTHER_KEYS}}}'
        after = "null" if op == "d" else self._row(key)
        self._keep(key, None if op == "d" else after)
        return key, self._line(op, before, after)

    def _keep(self, key: int, row: str | None) -> None:
        if row is None:
            del self._rows[key]
            last, place = self._order.pop(), self._place.pop(key)
            if last != key:
                self._order[place], self._place[last] = last, place
            return
        if key not in self._rows:
            self._place[key] = len(self._order)
            self._order.append(key)
        self._rows[key] = row

    def _row(self, key: int) -> str:
        number = self._number
        amount = f"{number * 7919 % 100_000}.{number % 90 + 10}"
        moment = f"2026-01-01T{number % 24:02d}:{number % 60:02d}:00.{number % 1_000_000:06d}"
        note = f"{number * 2654435761 % 2**64:032x}"
        status = ("new", "paid", "sent", "returned")[number % 4]
        quote = '"' if self._encoding.text else ""
        return (
            f'{{"id":{quote}{key}{quote},"customer":"customer {key % 5000}","email":"user{key}@example.com",'
            f'"status":"{status}","amount":{quote}{amount}{quote},"version":{quote}{number}{quote},'
            f'"updated_at":"{moment}","note":"{note}"}}'
        )

    def _line(self, op: str, before: str, after: str) -> str:
        number, self._number = self._number, self._number + 1
        return self._encoding.line(number, op, before, after)


def write_updates(
    folder: Path, keys: Iterable[int], number: int, event_columns: Sequence[Collection[str]] = (tuple(COLUMNS),)
) -> int:
    """Write a file of updates, one for each key.

    :param number: number of the first event; later ones are higher.
    :param event_columns: columns each event carries beside the key, in turn; the others are null.
    :return: number of the next event.
    """
    writer = Writer(0)
    writer._number = number
    with (folder / "part-000.jsonl").open("w") as file:
        for key, names in zip(keys, itertools.cycle(event_columns), strict=False):
            row = json.loads(writer._row(key))
            row = {name: value if name in ("id", *names) else None for name, value in row.items()}
            file.write(writer._line("u", "null", json.dumps(row)))
    return writer._number


def final_state(files: str, format_name: str = "debezium-json") -> tuple[int, int]:
    """Return the number of remaining rows and the sum of their versions, computed by DuckDB."""
    import duckdb

    read = ENCODINGS[format_name]
    rows = read.rows.format(files=files, columns=read.columns)
    row = duckdb.execute(
        f"""SELECT count(*), sum(version) FROM (
          SELECT arg_max({read.is_delete}, {read.order}) AS gone, arg_max({read.version}, {read.order}) AS version
          FROM {rows} GROUP BY {read.key}) WHERE NOT gone"""
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])
