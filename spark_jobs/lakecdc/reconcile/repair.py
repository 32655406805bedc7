"""Rows that differ loaded anew from the source, by the way on which rows of a full load come that the log has to pass.

They are read with a place in the log below which they have every change. Ingestion goes on from where the table stands
and leaves out what is older than these rows. Keys that the source did not have at any look are deleted as of that
place; a row that has gone from the source since then is left to the log, which may tell of a new key that it got.

Without a log a row's place is its cursor, which orders it among all that ingestion reads, before and after. The delete
of a row that the source does not have takes the place of the table's row: whatever comes of the key later is above.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.errors import ConflictError, InputError, LakecdcError
from lakecdc.contract.options import IngestOptions
from lakecdc.contract.reconciling import ReconcileOptions
from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.ingest.job import feed_from
from lakecdc.ingest.order import order_key
from lakecdc.reconcile.again import Judged, judged
from lakecdc.reconcile.sources import LoadedTable
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.contract.report import TableReport
    from lakecdc.contract.spec import JobSpec
    from lakecdc.ingest.change import TableBatch
    from lakecdc.metadata.positions import Position
    from lakecdc.reconcile.compare import Comparison, Difference
    from lakecdc.reconcile.ranges import Wanted

log = logging.getLogger(__name__)

# ingestion that runs meanwhile may commit first
_ATTEMPTS = 5
_LOWEST = order_key(0, 0)


@dataclass(frozen=True)
class Repaired:
    """What became of rows that differed.

    :param left: those that differ still, or of which it is not known.
    :param rows: those that agree since they were loaded anew.
    :param loaded: what ingestion reports of the loading; None if there was none.
    """

    left: Judged
    rows: tuple[Difference, ...] = ()
    loaded: TableReport | None = None


def repair(spec: JobSpec, comparison: Comparison, found: Judged) -> Repaired:
    """Load the rows that differ anew, and look at them again.

    :param found: by the looks before.
    :raises ConflictError: ingestion, which is to wait, runs for longer than ``max_wait``.
    """
    assert isinstance(spec.options, ReconcileOptions)
    table, rows = comparison.pair.table, found.mismatches
    loaded = _loaded(spec, comparison, rows, spec.options)
    if loaded.failure_class:
        return Repaired(found, loaded=loaded)
    head = table.refresh().head()
    again = comparison.differences_of(head.id if head else None, rows)
    left = judged(comparison, again, spec.options.max_wait) if again.rows else Judged((), looks=0)
    looks = found.looks + 1 + left.looks
    return Repaired(
        Judged(left.mismatches, found.in_flight + left.in_flight, found.undecided + left.undecided, looks),
        tuple(row for row in rows if row.key not in again.rows),
        loaded,
    )


def _loaded(
    spec: JobSpec, comparison: Comparison, rows: Sequence[Difference], options: ReconcileOptions
) -> TableReport:
    pair, source = comparison.pair, comparison.pair.source
    assert isinstance(source, LoadedTable)
    feeding = IngestOptions(report_values=options.report_values, quarantine_table=options.quarantine_table)
    spec = replace(spec, job="ingest", options=feeding, targets=(pair.target,), tables=(pair.table.name,))
    with source.alone(options.max_wait):
        for _attempt in range(_ATTEMPTS):
            log.info("%s: loading %d rows anew", pair.table.name, len(rows))
            (report,) = feed_from(lambda: _Rows(comparison, source, rows), pair.table.spark, spec, {})
            if report.failure_class != ConflictError.failure_class:
                break
    return report


def _begun(position: Position | None, recorded: Mapping[str, Position]) -> Position:
    """Where a table stands that rows can be loaded into.

    :param recorded: ends of batches that an interrupted run has left.
    """
    if position is None:
        raise InputError(
            "The table does not tell how far it has been fed, so that single rows cannot be loaded into it.",
            hint='Load it in full: run ingest once with "reload" in options.',
        )
    if recorded:
        raise InputError("A run of ingest was interrupted.", hint="Run ingest first, which takes its batch to the end.")
    return position


@dataclass
class _Rows:
    """Some rows of one table as the source of ingestion; see :class:`lakecdc.ingest.change.IngestSource`."""

    comparison: Comparison
    source: LoadedTable
    rows: Sequence[Difference]
    refused: Mapping[str, Exception] = field(default_factory=dict)
    given_up: Mapping[str, Exception] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)
    _batches: list[TableBatch] = field(default_factory=list)

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """Read them, or refuse the table."""
        table = self.comparison.pair.table.refresh()
        try:
            position = _begun(positions[table.name], recorded)
            wanted = self.comparison.pair.asked(self._wanted())
            self._batches = [self.source.load(wanted, table, position, self._changes)]
        except LakecdcError as error:
            self.refused = {table.name: error}

    def rounds(self) -> Iterator[list[TableBatch]]:
        """One round with all of them."""
        yield self._batches

    def _wanted(self) -> Wanted | None:
        return self.comparison.ranges.keys([each.number for each in self.rows])

    def _changes(self, found: DataFrame, order: str | None, time: datetime) -> DataFrame:
        """Their rows, and a delete for each that the source has never had."""
        key = [F.col("key")[name] for name in self.source.key]
        there = self.comparison.only(found, self.rows, key).localCheckpoint()
        gone = self._held(there).join(there.select("key"), "key", "left_anti")
        place = F.col("held") if order is None else F.lit(order)
        told = {"op": F.lit("d"), "key": F.col("key"), "order": place, "source_time": F.lit(time)}
        values = [told.get(of.name, F.lit(None)).cast(of.dataType).alias(of.name) for of in there.schema.fields]
        return there.unionByName(gone.select(*values).localCheckpoint())

    def _held(self, like: DataFrame) -> DataFrame:
        """Keys that the source did not have, as far as the table has them, with the order keys that they have there.

        :param like: has the keys as the source does.
        """
        pair, wanted = self.comparison.pair, self._wanted()
        columns, head = [F.col(quoted_column(name)) for name in pair.key], pair.table.head()
        rows = pair.table.read(head.id if head else None, where=wanted.in_spark() if wanted else "true")
        rows = self.comparison.only(rows, [each for each in self.rows if not each.source], columns)
        keys = rows.groupBy(F.struct(*columns).cast(like.schema["key"].dataType).alias("key"))
        # what others have written has none
        return keys.agg(F.coalesce(F.max(ORDER_COLUMN), F.lit(_LOWEST)).alias("held"))

    def applied(self, table: str, position: Position) -> None:
        """Nothing is kept for it."""

    def failed(self, table: str, error: Exception) -> None:
        """Nothing is kept for it."""

    def finish_round(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is held."""
