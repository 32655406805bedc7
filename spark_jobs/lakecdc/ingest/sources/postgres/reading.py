"""What a read of the log is to find and where it ends, and what it has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lakecdc.ingest.column_numbers import Columns, identified, places


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
    """A table at one moment of the log.

    :param version: counts the different descriptions of the table within one read, from 0.
    :param identity: ``d`` default, ``n`` nothing, ``f`` full, ``i`` index.
    :param key: places of the columns by which its rows were told apart; None if an earlier release has read it.
    """

    oid: int
    version: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]
    key: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Wanted:
    """What a reader wants to know of one table.

    :param start: commit position (LSN as a number) below which its events are already applied.
    :param key: columns that identify a row.
    :param excluded: columns that are left out.
    :param numbers: of the columns when the log was read last, and as the catalog has them, which is where ``key`` is
        from; None if a column is known by its name alone.
    """

    start: int
    key: tuple[str, ...]
    excluded: frozenset[str] = frozenset()
    numbers: tuple[Columns, Columns] | None = None

    def key_places(self, names: Sequence[str]) -> tuple[int, ...]:
        """Where the key's columns stand.

        :param names: of all columns, as the log has them.
        :return: empty if that cannot be told.
        """
        if self.numbers is None:
            return tuple(names.index(column) for column in self.key if column in names)
        known, catalog = self.numbers
        key = [number for column in self.key if (number := catalog.get(column)) is not None]
        return places(identified(names, known, catalog), key)


@dataclass(frozen=True)
class Bounds:
    """After what a read ends, with the transaction that it is in.

    :param bytes: of column values in the rows it delivers; 0 is no bound.
    :param seconds: since the first message, once it has delivered a row; 0 is no bound.
    """

    bytes: int = 0
    seconds: float = 0


@dataclass
class Summary:
    """What one read has seen.

    :param messages: messages read, skipped ones included.
    :param end_lsn: position after the last transaction; 0 if there was none.
    :param commit_micros: its commit time, microseconds since 1970.
    :param events: number of events by table oid and kind.
    :param truncates: last TRUNCATE by table oid: commit LSN, ordinal, commit time in microseconds and transaction,
        which an earlier release has not parked.
    :param relations: every description of a wanted table, in order.
    :param bytes: of the column values delivered.
    :param cut: a bound ended the read; more messages may be there.
    :param open: oids of tables with an update that leaves values out.
    """

    messages: int = 0
    end_lsn: int = 0
    commit_micros: int = 0
    events: dict[int, dict[str, int]] = field(default_factory=dict)
    truncates: dict[int, tuple[int, ...]] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)
    bytes: int = 0
    cut: bool = False
    open: list[int] = field(default_factory=list)

    @property
    def event_bytes(self) -> int:
        """Mean size of an event; 0 if there was none."""
        return self.bytes // max(1, sum(sum(kinds.values()) for kinds in self.events.values()))

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Summary:
        """Back from a JSON object."""
        return cls(
            document["messages"],
            document["end_lsn"],
            document["commit_micros"],
            {int(oid): kinds for oid, kinds in document["events"].items()},
            {int(oid): tuple(place) for oid, place in document["truncates"].items()},
            [
                Relation(**{**r, "columns": tuple(RelationColumn(**c) for c in r["columns"]), "key": _key(r)})
                for r in document["relations"]
            ],
            document["bytes"],
            document["cut"],
            document.get("open", []),
        )


def _key(relation: Mapping[str, Any]) -> tuple[int, ...] | None:
    found = relation.get("key")
    return None if found is None else tuple(found)
