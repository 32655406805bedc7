"""The events and the summary of a round, the same for every server; decoders use them without Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import msgspec

#: Spark SQL schema of decoded events, in rounds and where they are parked; ``commit_lsn`` is a place in any log
EVENTS = (
    "relation bigint, version int, kind string, commit_lsn bigint, ordinal bigint, commit_micros bigint, "
    "new array<string>, open array<string>, old array<string>, moved boolean, summary string"
)


class Relation(Protocol):
    """A table's description at one moment of the log."""

    @property
    def table(self) -> int: ...


L = TypeVar("L", bound=Relation)


@dataclass(kw_only=True)
class Summary(ABC, Generic[L]):
    """The summary of a round, by number of the source table.

    :cvar truncate_unit: microseconds of a unit of the time in ``truncates``.
    :param events: number of events by kind.
    :param truncates: place, ordinal and time of each table's last TRUNCATE, and further facts of its server.
    :param relations: descriptions of the tables in the log, oldest first.
    """

    truncate_unit: ClassVar[int] = 1

    events: dict[int, dict[str, int]] = field(default_factory=dict)
    truncates: dict[int, tuple[int, ...]] = field(default_factory=dict)
    relations: list[L] = field(default_factory=list)

    @property
    @abstractmethod
    def end(self) -> int:
        """Place from which events are not of the round; a repeated read may go past its end."""

    @property
    @abstractmethod
    def event_bytes(self) -> int:
        """Mean size of an event; 0 if there was none."""

    def count(self, table: int, kind: str, number: int) -> None:
        kinds = self.events.setdefault(table, {})
        kinds[kind] = kinds.get(kind, 0) + number

    def truncate(self, table: int) -> tuple[int, int, int] | None:
        """Return place, ordinal and time in milliseconds of a table's last TRUNCATE; None without one."""
        last = self.truncates.get(table)
        return (last[0], last[1], last[2] * self.truncate_unit // 1000) if last else None

    def check_parkable(self, table: int) -> None:
        """Check that a later run can continue with a table's events.

        :raises UnsupportedError: it cannot continue from the end of the round.
        """

    def relations_of(self, table: int) -> list[L]:
        """Return the descriptions of one table, oldest first."""
        return [relation for relation in self.relations if relation.table == table]

    def of_table(self, table: int) -> Self:
        """Return the part that concerns one table."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        own = {n: {t: v for t, v in by.items() if t == table} for n, by in values.items() if isinstance(by, dict)}
        return replace(self, **own, relations=self.relations_of(table))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        return msgspec.convert(document, cls, str_keys=True)
