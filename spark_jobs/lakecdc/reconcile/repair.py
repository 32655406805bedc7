"""Reload differing rows from the source, and apply them like a full load whose log position is still ahead.

Rows are read at a log position, and include every change up to it. Ingestion continues from the table's position and
skips changes older than these rows. Keys that no read found at the source are deleted at that position; a row that
disappeared later is left to the log, which may report a new key for it.

Without a log, a row's order is its cursor, which orders it among all rows that ingestion reads. The delete of a row
that the source lacks gets the order of the table's row, so that any later change of the key is newer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import monotonic, sleep

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import ConflictError, InputError, LakecdcError
from lakecdc.contract.feeding import IngestOptions, ReconcileOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.iceberg.table import IcebergTable, source_position
from lakecdc.ingest.api import Batch, KeyCondition, LoadedTable, feed_tables
from lakecdc.metadata.positions import Position
from lakecdc.model.order import order_key
from lakecdc.reconcile.compare import Comparison, Difference, Differences
from lakecdc.sql import quoted_column

log = logging.getLogger(__name__)

_POLL_SECONDS = 5.0
# a concurrent ingestion run may commit first
_ATTEMPTS = 5
_LOWEST = order_key(0, 0)


@dataclass(frozen=True)
class Recheck:
    """Result of rechecking rows that differed.

    :param mismatches: rows that differ permanently.
    :param in_flight: number of rows whose change was still on its way.
    :param undecided: number of rows that differ but may be in flight.
    """

    mismatches: tuple[Difference, ...]
    in_flight: int = 0
    undecided: int = 0
    looks: int = 1


def recheck(comparison: Comparison, first: Differences, max_wait: float) -> Recheck:
    """Reread rows that just differed until each is a mismatch, in flight, or ``max_wait`` seconds are over."""
    table, source = comparison.pair.table, comparison.pair.source
    waiting, looks = dict(first.rows), 1
    mismatches: list[Difference] = []
    read_at, deadline = source.now(), monotonic() + max_wait
    while waiting:
        log.info("%s: %d rows differ", table.name, len(waiting))
        passed = read_at is None or _wait(table, read_at, deadline)
        again, looks = comparison.differences_of(list(waiting.values())).rows, looks + 1
        read_at = source.now()
        for_good = [each for key, each in again.items() if passed and each.source == waiting[key].source]
        mismatches += for_good
        waiting = {key: each for key, each in again.items() if each not in for_good}
        if monotonic() >= deadline:
            break
    in_flight = len(first.rows) - len(mismatches) - len(waiting)
    return Recheck(tuple(mismatches), in_flight, len(waiting), looks)


def _wait(table: IcebergTable, moment: datetime, deadline: float) -> bool:
    """Wait until a table is fed past a moment of its source; return False if that is known not to happen."""
    log.info("%s: waiting until it has been fed past %s", table.name, moment.isoformat())
    while True:
        position = source_position(table.refresh())
        through = datetime.fromisoformat(position.read_through) if position and position.read_through else None
        if through is not None and through >= moment:
            return True
        left = deadline - monotonic()
        if left <= 0:
            return through is None
        sleep(min(_POLL_SECONDS, left))


@dataclass(frozen=True)
class Repaired:
    """Result of a repair.

    :param left: rows that still differ or are undecided.
    :param rows: rows that agree after the reload.
    :param loaded: ingestion's report of the reload; None if there was none.
    """

    left: Recheck
    rows: tuple[Difference, ...] = ()
    loaded: TableReport | None = None


def repair(spec: JobSpec, comparison: Comparison, before: Recheck) -> Repaired:
    """Reload the rows that differ, and recheck them; wait for ingestion no longer than ``max_wait``."""
    options = spec.options_as(ReconcileOptions)
    rows = before.mismatches
    loaded = _loaded(spec, comparison, rows, options)
    if loaded.failure_class:
        return Repaired(before, loaded=loaded)
    again = comparison.differences_of(rows)
    left = recheck(comparison, again, options.max_wait) if again.rows else Recheck((), looks=0)
    looks = before.looks + 1 + left.looks
    return Repaired(
        Recheck(left.mismatches, before.in_flight + left.in_flight, before.undecided + left.undecided, looks),
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
            log.info("%s: reloading %d rows", pair.table.name, len(rows))
            (report,) = feed_tables(lambda: _Rows(comparison, source, rows), pair.table.spark, spec, {})
            if report.failure_class != ConflictError.failure_class:
                break
    return report


@dataclass
class _Rows:
    """Rows of one table as a source for ingestion; see :class:`lakecdc.ingest.batch.IngestSource`."""

    comparison: Comparison
    source: LoadedTable
    rows: Sequence[Difference]
    refused: Mapping[str, Exception] = field(default_factory=dict)
    given_up: Mapping[str, Exception] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)
    _batches: list[Batch] = field(default_factory=list)

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        table = self.comparison.pair.table.refresh()
        try:
            position = positions[table.name]
            if position is None:
                raise InputError(
                    "Cannot reload single rows: the table does not record how far it was fed.",
                    hint='Load it in full: run ingest once with "reload" in options.',
                )
            if recorded:
                raise InputError("A run of ingest was interrupted.", hint="Run ingest first to complete its batch.")
            condition = self.comparison.pair.at_source(self._condition())
            self._batches = [self.source.load(condition, table, position, self._changes)]
        except LakecdcError as error:
            self.refused = {table.name: error}

    def rounds(self) -> Iterator[list[Batch]]:
        yield self._batches

    def _do_nothing(self, *_: object, **__: object) -> None:
        """Ignore calls of ingestion to a source: this source has no state and no connection."""

    applied = failed = finish_round = close = _do_nothing

    def _condition(self) -> KeyCondition | None:
        return self.comparison.ranges.keys([each.number for each in self.rows])

    def _changes(self, read: DataFrame, order: str | None, time: datetime) -> DataFrame:
        """Return the rows, and a delete for each row that no read found at the source."""
        key = [F.col("key")[name] for name in self.source.key]
        there = self.comparison.only(read, self.rows, key).localCheckpoint()
        missing = self._keys_without_source(there).join(there.select("key"), "key", "left_anti")
        place = F.col("table_order") if order is None else F.lit(order)
        delete = {"op": F.lit("d"), "key": F.col("key"), "order": place, "source_time": F.lit(time)}
        values = [delete.get(of.name, F.lit(None)).cast(of.dataType).alias(of.name) for of in there.schema.fields]
        return there.unionByName(missing.select(*values).localCheckpoint())

    def _keys_without_source(self, like: DataFrame) -> DataFrame:
        """Return the table's keys that no read found at the source, in the types of ``like``, with their order keys."""
        pair, condition = self.comparison.pair, self._condition()
        columns, head = [F.col(quoted_column(name)) for name in pair.key], pair.table.head()
        rows = pair.table.read(head.id if head else None, where=condition.in_spark() if condition else "true")
        rows = self.comparison.only(rows, [each for each in self.rows if not each.source], columns)
        keys = rows.groupBy(F.struct(*columns).cast(like.schema["key"].dataType).alias("key"))
        # rows of other writers have no order key
        return keys.agg(F.coalesce(F.max(ORDER_COLUMN), F.lit(_LOWEST)).alias("table_order"))
