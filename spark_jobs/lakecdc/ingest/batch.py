"""A batch, the changes of a table in one commit, and the interface of sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from lakecdc.contract.target import Target
from lakecdc.metadata.positions import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.fence import KnownState
    from lakecdc.ingest.audit import Audit
    from lakecdc.ingest.change import Column, ColumnHistory, Rows
    from lakecdc.ingest.floor import BelowFloor
    from lakecdc.key_search.places import Places


@dataclass(frozen=True, eq=False)
class Rejected:
    """Messages that cannot be applied.

    :param messages: ``formats.changes.REJECTED``.
    :param unreadable: number of unreadable messages among them, which the source does not count as events.
    """

    messages: DataFrame
    count: int
    unreadable: int = 0

    def __add__(self, other: Rejected) -> Rejected:
        messages = self.messages.unionByName(other.messages)
        return Rejected(messages, self.count + other.count, self.unreadable + other.unreadable)


@dataclass(frozen=True)
class SourceFacts:
    """Facts about a batch from its source, besides the changes.

    :param in_order: every event is newer than everything applied before, so no look-up is needed.
    :param overtaken_below: a full load has read the table as of this order key, and events below it come later: loaded
        rows are newer, and an update that cannot be completed is void, because its row was deleted before the load read
        it.
    :param table: full name of the one source table of the events, if messages name it.
    :param columns: all columns of the source at the end of the batch, with the number of each, which renames do not
        change; None if the source does not describe them all.
    :param column_history: the log's record of ``columns``; None if the log does not record all changes.
    :param origin: finds the messages of events again: turns a frame with their ``order``, ``rule`` and ``reason`` into
        rejected messages, ``formats.changes.REJECTED``, with the order key as ``asked``; None for a source without
        messages.
    :param stays: called with the places of messages that are rejected again; None unless the batch replays some.
    :param unproven: why the events do not prove which rows the source has; None for a log of all changes of a table
        with a unique key.
    :param facts: numbers for the report, such as ``source_lag_seconds``.
    """

    in_order: bool = True
    overtaken_below: str | None = None
    table: str | None = None
    columns: Mapping[str, int | None] | None = None
    column_history: ColumnHistory | None = None
    origin: Callable[[DataFrame], DataFrame] | None = None
    stays: Callable[[DataFrame], None] | None = None
    unproven: str | None = "its source is not a database log"
    facts: Mapping[str, object] = field(default_factory=dict)


def _refuse_misfits(_misfits: DataFrame, rows: int) -> None:
    raise AssertionError(f"no quarantine for the misfits among {rows} rows")


@dataclass(frozen=True)
class CommitPlan:
    """Decisions about the commit of a batch.

    :param replaces: the rows replace all rows of the target.
    :param first_order: lowest order key of the events; None if unknown.
    :param floor: rows below it have expired and are left out.
    :param erasure: the table's record of its last erasure when ``floor`` was read.
    :param rules: the table's property with the plan of aggregation; None without aggregation.
    :param state: state of the table with whose rows the batch was merged or completed; None if it needed none.
    :param places: places of the table's rows of keys looked up for that; None if unknown.
    :param audit: checks to pass before the batch is published, if any.
    :param keep_misfits: receives the rows of a full load whose values do not fit, as a change frame with the columns
        ``formats.text_columns.JUDGED``, and the number of all its rows; called after the other rows are written, before
        the commit.
    :param enter_history: adds the events to the history table, unless it has them; called when only the commit of the
        table can still refuse the batch. None without a history table.
    """

    replaces: bool = False
    first_order: str | None = None
    floor: BelowFloor | None = None
    erasure: str | None = None
    rules: str | None = None
    state: KnownState | None = None
    places: Places | None = None
    audit: Audit | None = None
    keep_misfits: Callable[[DataFrame, int], object] = _refuse_misfits
    enter_history: Callable[[], object] | None = None


@dataclass(frozen=True)
class Batch:
    """Changes of a table in one commit.

    :param key: key columns, from the spec or from the source.
    :param columns: the source's columns at the end of the batch, in order.
    :param rows: the changes; None without any.
    :param position: the source's position after the batch.
    :param full_load: the rows are a full load into a target without them.
    :param truncate_order: order key of the last TRUNCATE in the batch; rows and events below it are void.
    :param rejected: messages that cannot be applied, if any.
    """

    target: Target
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: Rows | None
    position: Position
    full_load: bool = False
    truncate_order: str | None = None
    rejected: Rejected | None = None
    source: SourceFacts = SourceFacts()
    commit: CommitPlan = CommitPlan()

    @property
    def may_be_held(self) -> bool:
        """Check whether the table may have newer states of rows than the events."""
        return not self.source.in_order or self.source.overtaken_below is not None

    def with_rejected(self, more: Rejected) -> Batch:
        return replace(self, rejected=self.rejected + more if self.rejected else more)

    def with_facts(self, **numbers: object) -> Batch:
        return replace(self, source=replace(self.source, facts={**self.source.facts, **numbers}))


class IngestSource(Protocol):
    """The source of changes during one run.

    :param refused: tables that it cannot feed, with the reasons; the others continue.
    :param given_up: failed tables whose changes it no longer keeps; they need a full load.
    :param facts: numbers for the report of every table, as of the end of the last round.
    """

    refused: Mapping[str, Exception]
    given_up: Mapping[str, Exception]
    facts: Mapping[str, object]

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """Check that the source can continue from the positions of the tables.

        :param positions: by target table; None for one that was never fed. Missing targets are not part of the run, and
            the source keeps their changes.
        :param recorded: ends of batches that an interrupted run has already written to a table's side tables; a batch
            of the table must end exactly there, so the side tables can skip it.
        :raises LakecdcError: it cannot continue; nothing is written.
        """

    def rounds(self) -> Iterator[list[Batch]]:
        """Yield rounds with one batch for every table still fed, also for tables without changes."""

    def applied(self, table: str, position: Position) -> None:
        """Record that the table has committed ``position``."""

    def failed(self, table: str, error: Exception) -> None:
        """Leave a failed table out of later rounds, and keep everything after its position."""

    def finish_round(self) -> None:
        """Release the round's resources, after all its tables are applied or have failed."""

    def close(self) -> None:
        """Release connections and locks."""
