"""Code shared by sources of messages and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from lakecdc.contract.errors import concerning
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.iceberg import definition
from lakecdc.iceberg.table import IcebergTable, open_if_there
from lakecdc.ingest.batch import Batch, SourceFacts
from lakecdc.ingest.change import Column
from lakecdc.ingest.cleaning import known_source_types
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.tables import source_types
from lakecdc.metadata.positions import Position

# most names of other source tables in a report
_MOST_NAMED = 20


class BatchSource:
    """Base of ingest sources that keep nothing open; see :class:`lakecdc.ingest.batch.IngestSource`."""

    def __init__(self, spark: SparkSession, spec: JobSpec) -> None:
        self.spark, self.spec = spark, spec
        self.refused: dict[str, Exception] = {}
        self.left_out: set[str] = set()
        self.given_up: Mapping[str, Exception] = {}
        self.facts: Mapping[str, object] = {}

    def failed(self, table: str, error: Exception) -> None:
        self.left_out.add(table)

    def round_of(self, targets: Iterable[Target], make: Callable[[Target], Batch]) -> list[Batch]:
        """Make a batch for each target that is not refused; refuse a table if that fails."""
        batches = []
        for target in targets:
            if target.table not in self.left_out:
                try:
                    with concerning(target.table):
                        batches.append(make(target))
                except Exception as error:
                    self.failed(target.table, error)
                    self.refused[target.table] = error
        return batches

    def known(self, target: Target) -> Known:
        return known_of(open_if_there(self.spark, self.spec.catalog.name, target.table), target)

    def finish_round(self) -> None:
        """Release the round's cached frames."""
        self.spark.catalog.clearCache()

    def close(self) -> None:
        """Do nothing."""


def known_of(table: IcebergTable | None, target: Target) -> Known:
    """Return types and key of a target's table by the source's names, and its partition transforms."""
    if table is None:
        return Known({}, partition_by=target.partition_by)
    types = source_types(table, target)
    key = tuple(known_source_types(target, dict.fromkeys(table.identifier_columns, "")))
    return Known(known_source_types(target, types), partition_by=partition_transforms(table, target), key=key)


def partition_transforms(table: IcebergTable | None, target: Target) -> tuple[str, ...]:
    """Return the partition transforms, in SQL, of a target's new files."""
    if table is None:
        return target.partition_by
    return tuple(definition.partition_expressions(table, definition.current_spec_id(table)))


def with_read_through(position: Position, newest: datetime | None) -> Position:
    """Return the position after a batch whose newest event has this source time."""
    if newest is None:
        return position
    moment = newest.isoformat()
    return replace(position, read_through=max(moment, position.read_through or moment))


def quiet_batch(target: Target, after: Position, facts: Mapping[str, object]) -> Batch:
    """Return the batch of a table without events; see :func:`table_batch`."""
    columns = tuple(Column(name, target.columns.get(name, "string")) for name in target.key)
    return Batch(target, target.key, columns, None, after, source=SourceFacts(in_order=False, facts=facts))


def table_batch(target: Target, decoded: Decoded, after: Position, facts: Mapping[str, object]) -> Batch:
    """Make a batch for a table that ends at ``after``, with the source's numbers for the report."""
    lag = (datetime.now(UTC) - decoded.newest).total_seconds() if decoded.newest else None
    return Batch(
        target,
        decoded.key,
        decoded.columns,
        decoded.rows,
        after,
        truncate_order=decoded.truncate_order,
        rejected=decoded.rejected,
        source=SourceFacts(
            in_order=False,
            table=decoded.source_table,
            columns=dict.fromkeys(decoded.source_columns) if decoded.source_columns else None,
            origin=decoded.origin,
            facts={
                **facts,
                "events": decoded.events,
                "decoding": decoded.passes,
                "source_lag_seconds": round(lag, 3) if lag is not None else None,
                **({"other_tables": decoded.others[:_MOST_NAMED]} if decoded.others else {}),
            },
        ),
    )
