"""Facts about a table before a batch, and a decoded batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from lakecdc.contract.target import Target
from lakecdc.ingest.batch import Rejected
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.engine.fold import can_fold
from lakecdc.ingest.engine.source_tables import shards_mix
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.model.order import Marks, Stretch

if TYPE_CHECKING:
    from lakecdc.ingest.engine.run import Scan


@dataclass(frozen=True)
class Known:
    """Facts about a table before a batch.

    :param types: Spark SQL types of the target's columns by name; empty if there is no table yet.
    :param marks: highest order key applied by ``topic/partition``; None if they cannot be trusted; then ``high_order``
        decides which events are late.
    :param high_order: highest order key applied.
    :param scan: scan by which tasks read the batch's messages; None if Spark reads them.
    :param partition_by: partition transforms of the target in SQL.
    :param key: the table's key columns; empty without a table or key.
    :param folds: tasks may fold; otherwise they yield every event.
    """

    types: Mapping[str, str]
    marks: Mapping[str, str] | None = None
    high_order: str | None = None
    scan: Scan | None = None
    partition_by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    folds: bool = True


@dataclass(frozen=True)
class Request:
    """Options for decoding a batch of messages for one table.

    :param adopt: whether this table rejects messages of no known source table (such as text that is not JSON).
    """

    format: str
    target: Target
    reading: Reading
    known: Known
    adopt: bool

    @property
    def key(self) -> tuple[str, ...]:
        """Return the table's key columns; empty if there are none, or they are unknown yet."""
        return self.target.key or (self.known.key if self.target.keyed else ())

    @property
    def folds(self) -> bool:
        """Check whether tasks may reduce the batch to the last event of each key."""
        return can_fold(self.target) and self.known.folds

    @property
    def marks(self) -> Marks:
        """Return the highest order keys applied to the table."""
        # positions of different shards cannot be compared, so marks do not apply to a row
        return Marks(None if shards_mix(self.target) else self.known.marks, self.known.high_order)


@dataclass(frozen=True)
class Decoded:
    """The messages of a batch as changes of one table.

    :param columns: the table's columns; only its key if the batch has no event of it.
    :param key: the target's key columns, or else those of the messages' keys.
    :param rows: the changes; None without events, or without an event with a new table's columns.
    :param truncate_order: order key of the last TRUNCATE.
    :param newest: source time of the newest event.
    :param events: row events and TRUNCATEs.
    :param high_orders: highest order key of the batch by ``topic/partition``.
    :param stretches: stretches of its changes, by ``topic/partition``.
    :param passes: how often the messages were read, and why more than once.
    :param source_columns: all columns of the source in the last schema; empty without one.
    :param origin: finds the messages of events again; see :class:`lakecdc.ingest.batch.SourceFacts`.
    :param source_table: full name of the one source table of the events; None without events, and for shards.
    :param others: known source tables of a batch without messages for this table.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    rows: Rows | None = None
    rejected: Rejected | None = None
    truncate_order: str | None = None
    newest: datetime | None = None
    events: int = 0
    high_orders: Mapping[str, str] | None = None
    passes: str = "one pass"
    origin: Callable[[DataFrame], DataFrame] | None = None
    source_columns: tuple[str, ...] = ()
    stretches: Mapping[str, Sequence[Stretch]] = field(default_factory=dict)
    source_table: str | None = None
    others: tuple[str, ...] = ()

    @property
    def rejections(self) -> int:
        return self.rejected.count if self.rejected else 0
