"""Remember deletes if late events are possible, so that an older state cannot resurrect a row.

One Iceberg table per target, ``<table>_lakecdc_deletes``: the key, the delete's order key and source time. It is
written before the target. A replay may write a delete twice; only the highest order key of a key counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.spec import LOADED_SOURCES
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.commit_outcome import discarded_on_conflict
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import discard
from lakecdc.iceberg.table import IcebergTable, open_if_there
from lakecdc.ingest.change import Rows
from lakecdc.metadata.positions import Position
from lakecdc.model.order import order_key
from lakecdc.writer.parquet import refusal

SUFFIX = "_lakecdc_deletes"


def remember(target: IcebergTable, rows: Rows, key: Sequence[str], *, some: bool = False) -> None:
    """Append the deletes among folded rows; ``some``: there certainly are deletes."""
    facts = rows.stats
    if facts is None or facts.deletes:
        append_deletes(target, rows.deletes, key, some=some or facts is not None)


def append_deletes(
    target: IcebergTable, deletes: DataFrame, key: Sequence[str], *, some: bool = False, orders: Sequence[str] = ()
) -> None:
    """Append deletes, ``key, order, source_time``, with Spark.

    :param some: there certainly are deletes.
    :param orders: further columns, of their ``row``, with orders of the deleted rows.
    """
    deletes = deletes.select(
        *[F.col("key")[k].alias(k) for k in key],
        F.col("order").alias(ORDER_COLUMN),
        F.col("source_time").alias(TIME_COLUMN),
        *[F.col("row")[name].alias(name) for name in orders],
    )
    if not some and deletes.isEmpty():
        return
    table = _open_or_create(target, key)
    if orders:
        definition.evolve(table, [(name, "string") for name in orders])
    deletes.coalesce(1).writeTo(table.sql_name).append()


def memory_of(target: IcebergTable, rows: Rows, key: Sequence[str]) -> IcebergTable | None:
    """Return the table for the deletes of folded rows; None without deletes, or if Spark must write them."""
    if rows.stats is None or not rows.stats.deletes:
        return None
    table = _open_or_create(target, key)
    return table if refusal(table, ()) is None else None


def append_remembered(table: IcebergTable, files: list[Any]) -> None:
    with discarded_on_conflict(partial(discard, table, files)):
        append_changes(table, RowChanges(files), PositionFence(None))


def oldest_order_to_come(position: Position | None, before: Sequence[Position]) -> str | None:
    """Return the order key below which the source has no further events; None if unknown.

    Messages in quarantine are not considered. For a source without order, only a TRUNCATE and a new epoch give a bound:
    earlier events are void, or no longer read.

    :param position: the target's position; a log continues above it.
    :param before: positions that the target can be rolled back to, from which the source is read again.
    """
    if position is None:
        return None
    marks = [position.high_order] if position.source in LOADED_SOURCES else []
    return max(filter(None, (*marks, min(map(_void_below, (position, *before))))), default=None)


def _void_below(position: Position) -> str:
    return max(position.truncate_order or "", order_key(int(position.offsets.get("epoch", 0)), 0))


def open_remembered(target: IcebergTable) -> IcebergTable | None:
    """Return the table of a target's remembered deletes; None if it does not exist."""
    return open_if_there(target.spark, target.catalog, target.name + SUFFIX)


def _open_or_create(target: IcebergTable, key: Sequence[str]) -> IcebergTable:
    """Return the table of remembered deletes, with its key widened to the target's types."""
    table, types = open_remembered(target), definition.spark_types(target)
    if table is not None:
        there = set(table.column_names)
        definition.evolve(table, [(k, types[k]) for k in key if k in there])
        return table
    columns = [(k, types[k], True) for k in key] + definition.own_columns()
    metrics = {f"write.metadata.metrics.column.{c}": "full" for c in (*key, ORDER_COLUMN)}
    return definition.create_side_table(target.spark, target.catalog, target.name + SUFFIX, columns, properties=metrics)
