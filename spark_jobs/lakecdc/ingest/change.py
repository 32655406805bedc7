"""The canonical change frame: what every source delivers and every mode applies.

Columns of the frame, one row per change event:

=============  =======================================================================================
``op``         ``r`` full-load row, ``c`` insert, ``u`` update, ``d`` delete
``key``        struct of the key columns the event is about; for a delete the key that goes
``row``        struct of all columns after the event, typed; null for a delete
``open``       array of column names whose value in ``row`` is only a placeholder for "unchanged"; null if none
``old_key``    struct of the key columns the row had before, if the event moved it to ``key``; else null.
               The decoder delivers the delete of the old key as an event of its own as well
``order``      the order key (see ``order``)
``source_time``  timestamp at which the source committed the event
``late``       optional: the event does not lie above its own source partition's mark. Without the column an event is
               late if it does not lie above the table's highest order key
=============  =======================================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from lakecdc.contract.target import Target
from lakecdc.metadata.positions import Position

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lakecdc.ingest.audit import Audit
    from lakecdc.ingest.floor import BelowFloor
    from lakecdc.ingest.formats.native import Packed


@dataclass(frozen=True)
class Column:
    """A column as the target table should have it.

    :param type: Spark SQL type, such as ``decimal(12,2)``.
    :param required: NOT NULL; only key columns are created so.
    :param fill: value that the source shows in rows older than the column (``ADD COLUMN … DEFAULT``), although its log
        does not carry it; None if there is none.
    """

    name: str
    type: str
    required: bool = False
    fill: object = None


def alike(names: Sequence[str]) -> list[str]:
    """Names that differ from another one in case at most, which Spark cannot tell apart."""
    lower = Counter(name.lower() for name in names)
    return [name for name in names if lower[name.lower()] > 1]


@dataclass(frozen=True)
class ColumnsTold:
    """Columns of a source whose log tells every change of them, so that names may change places as well.

    :param before: the source's columns where the batch begins; :attr:`TableBatch.source_columns` has those at its end.
    :param begin: where the batch begins, as a number that grows with the log.
    :param end: where it ends.
    """

    before: Mapping[str, int | None]
    begin: int
    end: int


class OddValueError(Exception):
    """A value that Arrow does not take, or perhaps not as Spark does."""


@dataclass(frozen=True)
class ArrowRows:
    """Rows of a full load as tasks can read them, to write them without Spark in between.

    :param changes: the change frame of the same rows.
    :param read: yields the rows of a task with a certain number as tables of the batch's columns, named ``c0`` … in
        their order; raises :class:`OddValueError` at a value that is for Spark to judge. Runs in the task.
    :param tasks: how many there are, numbered from 0.
    :param order: order key of every row.
    :param time: source time of every row.
    :param refusal: why they cannot be read so; None if they can.
    :param judged: see :class:`TableBatch`.
    """

    changes: DataFrame
    read: Callable[[int], Iterator[pa.Table]]
    tasks: int
    order: str
    time: datetime
    refusal: str | None = None
    judged: Callable[[], DataFrame] | None = None


@dataclass(frozen=True)
class TableBatch:
    """The changes of one micro-batch for one table.

    :param target: the table to feed.
    :param key: its key columns, from the spec or from the source.
    :param columns: the source's columns at the end of the batch, in order.
    :param changes: the change frame; None if the table was quiet.
    :param position: where the source stands after the batch.
    :param in_order: every event lies above everything applied before, so that nothing need be looked up.
    :param full_load: the rows of a table that the target does not hold yet.
    :param replaces: the rows take the place of all that the target holds.
    :param truncate_order: order key of the last TRUNCATE in the batch; rows and events below it are void.
    :param overtaken_below: a full load has read the table as of this order key, and events below it come after that:
        rows that it read are newer, and an update whose placeholder cannot be completed is void, because the row was
        deleted again before the load came to it.
    :param folded: ``changes`` holds one row per key already, with event counts ``n_r``, ``n_c``, ``n_u``, ``n_d``.
    :param packed: where ``changes`` comes from, if tasks of the native engine hold it packed.
    :param every_event: every event, where ``changes`` is folded and a change log is fed from the batch as well.
    :param arrow_rows: where ``changes`` of a full load comes from, if tasks can read its rows without Spark.
    :param rejected: messages that cannot be applied, as ``formats.changes.REJECTED`` names them; None if none.
    :param rejections: how many these are.
    :param unreadable: those of them that the source does not count as events because they cannot be read.
    :param origin: finds the messages of events again: from a frame with their ``order``, a rule and a reason to
        rejected messages, ``formats.changes.REJECTED``, with that order key as ``asked``; None for a source without
        messages.
    :param stays: is told the places of messages that are rejected, where the batch is made of messages that were
        rejected before; else None.
    :param again: makes the batch again with every event of it, as the source tells it; None where ``changes`` has them
        so.
    :param judged: makes the change frame again with every event, values that do not fit as null and the columns
        ``sources.text_values.JUDGED``; None for a source whose values all fit or are judged by their format.
    :param source_columns: all columns that the source has at the end of the batch, under its own names, each with the
        number that it keeps when it is renamed; None where the source does not tell them all.
    :param source_table: full name of the one source table of the events, where messages tell it; else None.
    :param columns_told: what the log tells of ``source_columns``; None where it leaves something to guess.
    :param floor: of the table's expired rows, which the batch is held against.
    :param erasure: what the table told of its last erasure when the batch was held against its floor.
    :param audit: checks that it has to pass before it is published; None if there are none.
    :param enter_history: enters its events into the history table unless they are there already; called once only the
        commit of the table can still refuse the batch. None without a history table.
    :param facts: numbers for the report, such as ``source_lag_seconds``.
    """

    target: Target
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    changes: DataFrame | None
    position: Position
    in_order: bool = True
    full_load: bool = False
    replaces: bool = False
    truncate_order: str | None = None
    overtaken_below: str | None = None
    folded: bool = False
    packed: Packed | None = None
    every_event: Packed | None = None
    arrow_rows: ArrowRows | None = None
    rejected: DataFrame | None = None
    rejections: int = 0
    unreadable: int = 0
    origin: Callable[[DataFrame], DataFrame] | None = None
    stays: Callable[[DataFrame], None] | None = None
    again: Callable[[], TableBatch] | None = None
    judged: Callable[[], DataFrame] | None = None
    source_columns: Mapping[str, int | None] | None = None
    columns_told: ColumnsTold | None = None
    floor: BelowFloor | None = None
    erasure: str | None = None
    source_table: str | None = None
    audit: Audit | None = None
    enter_history: Callable[[], object] | None = None
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def may_be_held(self) -> bool:
        """Whether the table may hold newer states of rows than the events tell."""
        return not self.in_order or self.overtaken_below is not None


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

    def rounds(self) -> Iterator[list[TableBatch]]:
        """Micro-batches, each a list with one batch for every table that is still fed (quiet ones included)."""

    def applied(self, table: str, position: Position) -> None:
        """Note that the table stands at ``position`` now, committed."""

    def failed(self, table: str, error: Exception) -> None:
        """Leave a table that could not be fed out of later rounds; its position must not be passed."""

    def finish_round(self) -> None:
        """All tables of a round have been applied or have failed: the source may let go of what they hold."""

    def close(self) -> None:
        """Release connections and locks."""
