"""Change events as Flink reads them (Debezium JSON), and their plain fold: the expected rows of a table.

Standard library only: Flink's environment and the tests' both use it. Values are as in JSON, so that the
fold shares no code with any engine's types.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

Row = dict[str, Any]
Event = dict[str, Any]
Batch = list[Event]
#: random numbers, the number of the key, a unique version → the row
MakeRow = Callable[[Random, int, int], Row]

_NO_SUCH_KEY = 1_000_000


@dataclass
class Changes:
    """Change events over numbered keys, folded as they are created.

    :param random: source of all choices.
    :param make: creates the row of a key in a version.
    :param upsert: whether the writer treats an insert over an existing row as an update.
    :param required: columns that must not be null.
    :param rows: the fold: number of the key to the newest row.
    """

    random: Random
    make: MakeRow
    upsert: bool
    required: Collection[str]
    rows: dict[int, Row] = field(default_factory=dict)
    _deleted: list[int] = field(default_factory=list)
    _numbers: int = 0
    _version: int = 0

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield batches for a table that may already have rows; one batch is one commit of the writer.

        :param size: rows of the first load.
        """
        if not self.rows:
            yield self.load(size)
        yield self.updates(size // 10)
        yield self.deletes()
        yield self.several_changes_per_key()
        yield [self.delete(number) for number in self._some(0.1)]
        yield self.nulls_and_returns()

    def endless(self, size: int) -> Iterator[Batch]:
        """Yield endless batches, each with at least one insert."""
        yield self.load(size)
        while True:
            for step in (lambda: self.updates(5), self.deletes, self.several_changes_per_key, self.nulls_and_returns):
                yield [*step(), *self.load(1)]

    def load(self, count: int) -> Batch:
        """Insert new keys."""
        return [self.create(number) for number in self._new(count)]

    def updates(self, inserts: int) -> Batch:
        """Update many rows, and insert some."""
        return [self.update(number) for number in self._some(0.3)] + self.load(inserts)

    def deletes(self) -> Batch:
        """Delete rows, some of which do not exist, and update others."""
        batch = [self.delete(number) for number in self._some(0.15)]
        if self.upsert:
            batch += [self.delete(_NO_SUCH_KEY + number) for number in range(5)]
        self.random.shuffle(batch)
        return batch + [self.update(number) for number in self._some(0.05)]

    def several_changes_per_key(self) -> Batch:
        """Change rows of the same commit, which creates position deletes, and let keys return."""
        batch = [self.create(number) for number in self._returning(0.5)]
        for number in self._some(0.05):
            batch += [self.update(number), self.update(number)]
        for number in self._new(4):
            batch += [self.create(number), self.delete(number)]
        for number in self._some(0.04):
            batch += [self.delete(number), self.create(number)]
        for number in self._new(4):
            batch += [self.create(number), self.update(number), self.delete(number), self.create(number)]
        return batch

    def nulls_and_returns(self) -> Batch:
        """Write rows with only their required columns, returning keys, and existing rows again."""
        batch = [self.update(number, nulls=True) for number in self._some(0.1)]
        batch += [self.create(number) for number in self._returning(0.3)]
        if self.upsert:
            batch += [self._event("r", number, None, self._row(number)) for number in self._some(0.1)]
        return batch

    def create(self, number: int) -> Event:
        """Insert a row that does not exist."""
        return self._event("c", number, None, self._row(number))

    def update(self, number: int, *, nulls: bool = False) -> Event:
        """Change a row.

        :param nulls: set every nullable column to null.
        """
        old, new = self.rows[number], self._row(number)
        if nulls:
            new = {column: new[column] if column in self.required else None for column in new}
        return self._event("u", number, old, new)

    def delete(self, number: int) -> Event:
        """Delete a row, which may not exist."""
        old = self.rows.get(number)
        if old is not None:
            self._deleted.append(number)
        return self._event("d", number, old or self._row(number), None)

    def _event(self, operation: str, number: int, before: Row | None, after: Row | None) -> Event:
        if after is None:
            self.rows.pop(number, None)
        else:
            self.rows[number] = after
        return {"before": before, "after": after, "op": operation, "ts_ms": 1_700_000_000_000 + self._version}

    def _row(self, number: int) -> Row:
        self._version += 1
        return self.make(self.random, number, self._version)

    def _new(self, count: int) -> range:
        first, self._numbers = self._numbers, self._numbers + count
        return range(first, self._numbers)

    def _some(self, share: float) -> list[int]:
        return self.random.sample(sorted(self.rows), max(1, int(len(self.rows) * share)))

    def _returning(self, share: float) -> list[int]:
        deleted = [number for number in dict.fromkeys(self._deleted) if number not in self.rows]
        self._deleted = []
        return deleted[: max(1, int(len(deleted) * share))]
