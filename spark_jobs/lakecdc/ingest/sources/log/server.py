"""Interface of a database server whose log feeds tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Generic

from pyspark.sql import DataFrame, SparkSession

from lakecdc.contract.errors import LakecdcError
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.iceberg.table import IcebergTable, open_if_there
from lakecdc.ingest.change import ColumnHistory
from lakecdc.ingest.engine.log import LogRows
from lakecdc.ingest.engine.log_layout import LogLayout
from lakecdc.ingest.sources.log.feed import F
from lakecdc.ingest.sources.log.parking import Parked
from lakecdc.ingest.sources.log.rounds import LogEnd, Round, S
from lakecdc.metadata.positions import Position
from lakecdc.model.positions import LogPosition, log_position

#: receives a table that cannot be fed, the reason, and the position from which the log must be kept
Refuse = Callable[[str, "LakecdcError", "Position | None"], None]
SummaryType = type[S]


@dataclass(frozen=True)
class LoadPart:
    """The rows of one commit of a full load.

    :param at: place from which the log is applied to them.
    :param load: progress of the load; None if it is complete.
    :param loaded: place up to which the rows may be newer than the log; 0 for the table's position.
    :param rows: None in a part that only ends the load.
    :param again: the target may already have some of them.
    :param cached: frames behind the rows, released with the round.
    """

    at: LogPosition
    load: Mapping[str, Any] | None = None
    loaded: int = 0
    rows: LogRows | None = None
    again: bool = False
    cached: Sequence[DataFrame] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TableChanges:
    """A table's part of a round, under the column names at the end of the round.

    :param source_columns: see ``SourceFacts.columns``, as is ``column_history``.
    """

    layout: LogLayout
    source_columns: Mapping[str, int | None] | None
    column_history: ColumnHistory | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


class LogServer(ABC, Generic[F, S]):
    """A server whose log feeds tables during one run.

    :cvar type: source type, as positions name it.
    :cvar twin_hint: remedy where two targets have the same source table.
    :cvar summary: of its rounds.
    :param place: ``host:port`` for messages.
    :ivar asking: converts the server's errors to lakecdc's.
    :ivar max_lag_bytes: bytes of log that the server may keep for a table that does not follow; 0 is no limit.
    :ivar unlogged: why the log may lack row changes; None if it has all.
    """

    type: ClassVar[str]
    twin_hint: ClassVar[str]
    summary: SummaryType[S]
    asking: Callable[[], AbstractContextManager[None]]
    max_lag_bytes: int = 0
    unlogged: str | None = None

    def __init__(self, spark: SparkSession, spec: JobSpec, place: str) -> None:
        self.spark, self.spec, self.place = spark, spec, place
        self._opened = ExitStack()

    def target_table(self, target: Target) -> IcebergTable | None:
        return open_if_there(self.spark, self.spec.catalog.name, target.table)

    @abstractmethod
    def open(self) -> str:
        """Connect, check the server, and return its identity, which differs from that of any other server.

        :raises LakecdcError: its log cannot be read, or another run reads it.
        """

    @abstractmethod
    def describe(self, number: int, target: Target, position: Position | None, parked: list[Parked]) -> F:
        """Read a target's source table and check that the target can continue from a position.

        :raises InputError: the target cannot be fed.
        """

    @abstractmethod
    def describe_columns(self, feed: F) -> None:
        """Derive the target's columns.

        :raises InputError: the source's columns cannot feed it.
        """

    @abstractmethod
    def prepare(
        self, positions: Mapping[str, Position | None], feeds: Mapping[str, F], refuse: Refuse
    ) -> Mapping[str, int]:
        """Check that the log reaches back to the tables' positions, and begin the snapshot of tables without one.

        :param positions: of the run's targets, refused ones included.
        :return: places from which the log must be kept for source tables that the run does not feed.
        :raises LakecdcError: the log is kept for other tables, or no longer exists.
        """

    @abstractmethod
    def load(self, feed: F, epoch: int, *, whole: bool) -> Iterator[LoadPart]:
        """Yield the rest of a table's full load, part by part.

        :param whole: in one part.
        """

    @abstractmethod
    def log_end(self) -> LogEnd:
        """Return where the log ends now."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the server's clock."""

    @abstractmethod
    def read_log(self, feeds: Sequence[F], end: LogEnd, *, repeated: bool) -> Round[S]:
        """Read a round for some tables, from the lowest place that they have reached.

        :param repeated: repeat an interrupted batch, which must end at ``end`` again.
        """

    @abstractmethod
    def take(self, log_round: Round[S], feed: F, relation: int) -> TableChanges:
        """Return a table's part of a round.

        :param relation: the table's number in the round.
        :raises InputError: the table cannot follow it.
        """

    @abstractmethod
    def position_at(self, feed: F, before: LogPosition | None, at: LogPosition) -> LogPosition:
        """Return the position of a table that has the log up to a place; a table that is ahead keeps its position."""

    def parked_round(self, parked: Parked, events: DataFrame) -> Round[S]:
        """Return a parked round in the form of one read from the log."""
        at = log_position(Position(self.type, parked.identity, {**parked.offsets}))
        assert at is not None
        return Round(self.summary.from_json(parked.summary), LogEnd(at, parked.moment), parked=events)

    def release(self, upto: int | None, followed: int | None, *, loading: bool) -> Mapping[str, Any]:
        """Let the server remove the log before a place, and release what finished full loads needed.

        :param upto: None if no table's place is known.
        :param followed: the lowest place reached by a table that follows the log; None without such a table.
        :return: facts for the report.
        """
        return {}

    def close(self) -> None:
        self._opened.close()
