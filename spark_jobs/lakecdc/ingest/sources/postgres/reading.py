"""Input, limits and summary of a read of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lakecdc.ingest.column_numbers import Columns, identified, places
from lakecdc.ingest.sources.log import summary


@dataclass(frozen=True)
class RelationColumn:
    """A column as a Relation message describes it.

    :param identity: part of the replica identity.
    """

    name: str
    type_oid: int
    type_modifier: int
    identity: bool


@dataclass(frozen=True)
class Relation:
    """A table at one place in the log.

    :param version: counts the different descriptions of the table within one read, from 0.
    :param identity: ``d`` default, ``n`` nothing, ``f`` full, ``i`` index.
    :param key: places of the columns that identified its rows.
    """

    table: int
    version: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]
    key: tuple[int, ...] = ()


@dataclass(frozen=True)
class LogTable:
    """One table of a read.

    :param start: commit position (LSN as a number) below which its events are already applied.
    :param excluded: columns to leave out.
    :param numbers: column numbers when the log was last read, and those in the catalog, from which ``key`` is; None if
        only the name is known.
    """

    start: int
    key: tuple[str, ...]
    excluded: frozenset[str] = frozenset()
    numbers: tuple[Columns, Columns] | None = None

    def key_places(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the places of the key's columns; empty if they are uncertain.

        :param names: names of all columns in the log.
        """
        if self.numbers is None:
            return tuple(names.index(column) for column in self.key if column in names)
        known, catalog = self.numbers
        key = [number for column in self.key if (number := catalog.get(column)) is not None]
        return places(identified(names, known, catalog), key)


@dataclass(frozen=True)
class Bounds:
    """Limits of a read, which ends after the current transaction.

    :param bytes: bytes of column values in its rows; 0 is unbounded.
    :param seconds: seconds since the first message, once there is a row; 0 is unbounded.
    """

    bytes: int = 0
    seconds: float = 0


@dataclass
class Summary(summary.Summary[Relation]):
    """The summary of one read.

    Truncates are commit LSN, ordinal, commit time in microseconds and transaction.

    :param messages: messages read, skipped ones included.
    :param end_lsn: position after the last transaction; 0 if there was none.
    :param commit_micros: its commit time, microseconds since 1970.
    :param bytes: bytes of the column values read.
    :param cut: a limit ended the read; there may be more messages.
    :param open: tables with an update that leaves values out.
    """

    messages: int = 0
    end_lsn: int = 0
    commit_micros: int = 0
    bytes: int = 0
    cut: bool = False
    open: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.end_lsn

    def truncated_by(self, oid: int) -> int | None:
        """Return the transaction of a table's last TRUNCATE."""
        place = self.truncates.get(oid)
        return place[3] if place else None

    @property
    def event_bytes(self) -> int:
        return self.bytes // max(1, sum(sum(kinds.values()) for kinds in self.events.values()))

    def of_table(self, table: int) -> Summary:
        own = self.event_bytes * sum(self.events.get(table, {}).values())
        return replace(super().of_table(table), bytes=own, messages=0, cut=False, open=[])
