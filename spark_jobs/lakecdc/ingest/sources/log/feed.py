"""A table of one run: its source table, its position, and its parked rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.ingest.change import Column
from lakecdc.ingest.sources.database import full_load_needed
from lakecdc.ingest.sources.log.parking import Parked
from lakecdc.metadata.positions import Position
from lakecdc.model.positions import LogPosition, log_position

C = TypeVar("C")


@dataclass(frozen=True)
class SourceTable(Generic[C]):
    """A source table and the target it feeds.

    :param key: key columns, from the target or from the source; empty if there are none.
    :param unique: the source enforces that keys are unique and not null.
    """

    target: Target
    schema: str
    name: str
    columns: tuple[C, ...]
    key: tuple[str, ...]
    unique: bool

    @property
    def label(self) -> str:
        """``schema.table`` for messages."""
        return f"{self.schema}.{self.name}"

    def full_load_needed(self, what: str) -> InputError:
        """Return the error of a target that cannot continue from its position."""
        return full_load_needed(what, self.target.table)


T = TypeVar("T", bound=SourceTable[Any])


@dataclass
class Feed(Generic[T]):
    """A table during a run.

    :param relation: number of the source table in the rounds of this run.
    :param position: of the target; None before its full load is applied.
    :param columns: the target's columns as last seen.
    :param failed: it accepts no more batches; its log is parked.
    :param parked: rounds that it applies before the log.
    :param chunks: number of chunks of its full load that this run read.
    """

    relation: int
    table: T
    position: Position | None
    columns: tuple[Column, ...] = ()
    failed: bool = False
    parked: list[Parked] = field(default_factory=list)
    chunks: int = 0

    @property
    def committed(self) -> LogPosition | None:
        return log_position(self.position)

    @property
    def at(self) -> int:
        """The position as a number; the table has every transaction before it."""
        committed = self.committed
        return committed.number if committed else 0

    @property
    def reached(self) -> LogPosition | None:
        """The position of the table once its parked rounds are applied."""
        if self.position is None or not self.parked:
            return self.committed
        return log_position(replace(self.position, offsets={**self.parked[-1].offsets}))

    @property
    def reach(self) -> int:
        """Place before which every transaction is applied or parked."""
        return max([self.at, *(parked.through for parked in self.parked)])

    @property
    def load(self) -> Mapping[str, Any] | None:
        """Progress of an unfinished full load."""
        committed = self.committed
        return committed.load if committed else None

    @property
    def loading(self) -> bool:
        """Whether its full load is unfinished."""
        return self.position is None or bool(self.load)

    @property
    def ahead(self) -> int:
        """Place up to which the log may repeat changes that the full load has read; 0 after it."""
        committed = self.committed
        return committed.ahead if committed else 0

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the key's columns at the position."""
        return self.table.key

    @property
    def source_columns(self) -> dict[str, int | None]:
        """The source's columns to record in the table."""
        raise NotImplementedError

    @property
    def remembered(self) -> dict[str, Any] | None:
        """The state of the source's storage that the position records."""
        return None

    def another_key(self) -> InputError:
        """Return the error of a source that identifies rows by other columns than the target."""
        label, key = self.table.label, ", ".join(self.table.key) or "none"
        return self.table.full_load_needed(f"The source table {label} has another key now ({key})")


F = TypeVar("F", bound=Feed[Any])
