"""What every source of messages does with a decoded batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakecdc.iceberg import definition
from lakecdc.ingest.batch import Batch, SourceFacts
from lakecdc.ingest.cleaning import known_source_types
from lakecdc.ingest.engine.decoded import Known
from lakecdc.ingest.tables import own_columns

if TYPE_CHECKING:
    from lakecdc.contract.target import Target
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.engine.decoded import Decoded
    from lakecdc.metadata.positions import Position


# names of other source tables in a report
_MOST_TOLD = 20


def known_types(table: IcebergTable | None, target: Target) -> dict[str, str]:
    """Spark SQL types of a target's columns by the source's names, but lakecdc's own; empty for no table."""
    if table is None:
        return {}
    own = {name for name, _, _ in own_columns(target)}
    types = {name: kind for name, kind in definition.spark_types(table).items() if name not in own}
    return known_source_types(target, types)


def _key(table: IcebergTable | None, target: Target) -> tuple[str, ...]:
    """Return a table's key columns by the source's names."""
    return tuple(known_source_types(target, dict.fromkeys(table.identifier_columns, ""))) if table else ()


def known_of(table: IcebergTable | None, target: Target) -> Known:
    """Return what a target's table tells of a batch for it, but for how far its source has come."""
    return Known(known_types(table, target), partition_by=partition_transforms(table, target), key=_key(table, target))


def partition_transforms(table: IcebergTable | None, target: Target) -> tuple[str, ...]:
    """Partition transforms in SQL that a target's new files have or, as long as there is no table, will have."""
    if table is None:
        return target.partition_by
    return tuple(definition.partition_expressions(table, definition.current_spec_id(table)))


def with_read_through(position: Position, newest: datetime | None) -> Position:
    """Return the position after a batch whose newest event has this source time."""
    if newest is None:
        return position
    moment = newest.isoformat()
    return replace(position, read_through=max(moment, position.read_through or moment))


def table_batch(target: Target, found: Decoded, after: Position, facts: Mapping[str, object]) -> Batch:
    """Return the batch of one table.

    :param after: where the source stands after it.
    :param facts: the source's own numbers for the report.
    """
    lag = (datetime.now(UTC) - found.newest).total_seconds() if found.newest else None
    return Batch(
        target,
        found.key,
        found.columns,
        found.rows,
        after,
        truncate_order=found.truncate_order,
        rejected=found.rejected,
        source=SourceFacts(
            in_order=False,
            table=found.source_table,
            columns=dict.fromkeys(found.source_columns) if found.source_columns else None,
            origin=found.origin,
            facts={
                **facts,
                "events": found.events,
                "decoded_by": found.engine,
                "source_lag_seconds": round(lag, 3) if lag is not None else None,
                **({"other_tables": found.others[:_MOST_TOLD]} if found.others else {}),
            },
        ),
    )
