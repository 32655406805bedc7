"""Define a batch, the changes that a table gets from its source in one commit, and the interface of sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from lakecdc.contract.target import Target
from lakecdc.metadata.positions import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.ingest.audit import Audit
    from lakecdc.ingest.change import Column, ColumnsTold, Rows
    from lakecdc.ingest.floor import BelowFloor


@dataclass(frozen=True, eq=False)
class Rejected:
    """Messages that cannot be applied.

    :param messages: ``formats.changes.REJECTED``.
    :param count: how many.
    :param unreadable: those of them that the source does not count as events, because they cannot be read.
    """

    messages: DataFrame
    count: int
    unreadable: int = 0

    def __add__(self, other: Rejected) -> Rejected:
        """Return the messages of both."""
        messages = self.messages.unionByName(other.messages)
        return Rejected(messages, self.count + other.count, self.unreadable + other.unreadable)


@dataclass(frozen=True)
class SourceFacts:
    """Facts about a batch from its source, besides the changes.

    :param in_order: every event lies above everything applied before, so that nothing need be looked up.
    :param overtaken_below: a full load has read the table as of this order key, and events below it come after that:
        rows that it read are newer, and an update whose placeholder cannot be completed is void, because the row was
        deleted again before the load came to it.
    :param table: full name of the one source table of the events, where messages tell it; else None.
    :param columns: all columns that the source has at the end of the batch, under its own names, each with the number
        that it keeps when it is renamed; None where the source does not tell them all.
    :param columns_told: what a log tells of ``columns``; None where it leaves something to guess.
    :param origin: finds the messages of events again: from a frame with their ``order``, a rule and a reason to
        rejected messages, ``formats.changes.REJECTED``, with that order key as ``asked``; None for a source without
        messages.
    :param stays: is told the places of messages that are rejected, where the batch is made of messages that were
        rejected before; else None.
    :param facts: numbers for the report, such as ``source_lag_seconds``.
    """

    in_order: bool = True
    overtaken_below: str | None = None
    table: str | None = None
    columns: Mapping[str, int | None] | None = None
    columns_told: ColumnsTold | None = None
    origin: Callable[[DataFrame], DataFrame] | None = None
    stays: Callable[[DataFrame], None] | None = None
    facts: Mapping[str, object] = field(default_factory=dict)


def _refuse_misfits(_misfits: DataFrame, rows: int) -> None:
    raise AssertionError(f"nothing keeps the misfits among {rows} rows")


@dataclass(frozen=True)
class CommitPlan:
    """Decisions of the run about the commit of a batch.

    :param replaces: the rows take the place of all that the target holds.
    :param floor: of the table's expired rows, which the batch is held against.
    :param erasure: what the table told of its last erasure when the batch was held against its floor.
    :param audit: checks that the batch has to pass before it is published; None if there are none.
    :param keep_misfits: takes the rows of a full load whose values do not fit, as a change frame with the columns
        ``formats.text_columns.JUDGED``, and the number of all its rows; called once the others are written, before the
        commit.
    :param enter_history: enters its events into the history table unless they are there already; called once only the
        commit of the table can still refuse the batch. None without a history table.
    """

    replaces: bool = False
    floor: BelowFloor | None = None
    erasure: str | None = None
    audit: Audit | None = None
    keep_misfits: Callable[[DataFrame, int], object] = _refuse_misfits
    enter_history: Callable[[], object] | None = None


@dataclass(frozen=True)
class Batch:
    """Changes that a table gets in one commit.

    :param target: the table to feed.
    :param key: its key columns, from the spec or from the source.
    :param columns: the source's columns at the end of the batch, in order.
    :param rows: the changes; None if the table was quiet.
    :param position: where the source stands after the batch.
    :param full_load: the rows of a table that the target does not hold yet.
    :param truncate_order: order key of the last TRUNCATE in the batch; rows and events below it are void.
    :param rejected: messages that cannot be applied; None if there are none.
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
        """Whether the table may hold newer states of rows than the events tell."""
        return not self.source.in_order or self.source.overtaken_below is not None

    def with_rejected(self, more: Rejected) -> Batch:
        """Return the batch with further messages that cannot be applied."""
        return replace(self, rejected=self.rejected + more if self.rejected else more)

    def with_facts(self, **numbers: object) -> Batch:
        """Return the batch with further numbers for the report."""
        return replace(self, source=replace(self.source, facts={**self.source.facts, **numbers}))


class IngestSource(Protocol):
    """Where changes come from. One instance serves one run.

    :param refused: tables that it found it cannot feed, each with the reason; the others go on.
    :param given_up: failed tables that it no longer keeps anything for; they need a full load.
    :param facts: numbers for the report of every table, as of the end of the last round.
    """

    refused: Mapping[str, Exception]
    given_up: Mapping[str, Exception]
    facts: Mapping[str, object]

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """Check that the source can go on from where the tables stand.

        :param positions: position of every target table by name; None for one that was never fed. A target that is
            not among them takes no part in the run, and what it has not got yet is kept for it.
        :param recorded: ends of batches that an interrupted run has written to a table's side tables already; a batch
            of the table must end exactly there, so that they can skip what they hold.
        :raises LakecdcError: if it cannot; nothing has been written by then.
        """

    def rounds(self) -> Iterator[list[Batch]]:
        """Micro-batches, each a list with one batch for every table that is still fed (quiet ones included)."""

    def applied(self, table: str, position: Position) -> None:
        """Note that the table stands at ``position`` now, committed."""

    def failed(self, table: str, error: Exception) -> None:
        """Leave a table that could not be fed out of later rounds; its position must not be passed."""

    def finish_round(self) -> None:
        """All tables of a round have been applied or have failed: the source may let go of what they hold."""

    def close(self) -> None:
        """Release connections and locks."""
