"""Remembering deletes where a late event is possible, so that an older state cannot resurrect a row.

One Iceberg table beside the target, ``<table>_lakecdc_deletes``: the key, the delete's order key and source time.
It is written before the target. A replay may write a tombstone twice; only the highest order key of a key counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import ConflictError
from lakecdc.contract.spec import LOADED_SOURCES
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import discard
from lakecdc.iceberg.table import IcebergTable, open_if_there
from lakecdc.model.order import order_key
from lakecdc.writer.parquet import refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecdc.ingest.change import Rows
    from lakecdc.metadata.positions import Position

SUFFIX = "_lakecdc_deletes"


def remember(target: IcebergTable, rows: Rows, key: Sequence[str], *, some: bool = False) -> None:
    """Append the deletes among folded rows.

    :param some: there are some, so that nobody need look.
    """
    told = rows.fold_stats
    if told is None or told.deletes:
        append_deletes(target, rows.deletes, key, some=some or told is not None)


def append_deletes(target: IcebergTable, deletes: DataFrame, key: Sequence[str], *, some: bool = False) -> None:
    """Append deletes by Spark.

    :param deletes: ``key, order, source_time``, one row per key.
    :param some: there are some, so that nobody need look.
    """
    deletes = deletes.select(
        *[F.col("key")[k].alias(k) for k in key],
        F.col("order").alias(ORDER_COLUMN),
        F.col("source_time").alias(TIME_COLUMN),
    )
    if not some and deletes.isEmpty():
        return
    deletes.coalesce(1).writeTo(_made(target, key).sql_name).append()


def memory_of(target: IcebergTable, rows: Rows, key: Sequence[str]) -> IcebergTable | None:
    """Return the table that the deletes of folded rows belong in; None without any, or if Spark has to write them."""
    if rows.fold_stats is None or not rows.fold_stats.deletes:
        return None
    table = _made(target, key)
    return table if refusal(table) is None else None


def append_remembered(table: IcebergTable, files: list[Any]) -> None:
    """Commit files of remembered deletes."""
    try:
        append_changes(table, RowChanges(files), PositionFence(None))
    except ConflictError:
        # after any other error the commit may have arrived
        discard(table, files)
        raise


def oldest_order_to_come(position: Position | None, before: Sequence[Position]) -> str | None:
    """Order key that the source has no event below which can still come; None if that cannot be told.

    What waits in the quarantine is not among these. Of a source whose events come in no order, only a TRUNCATE and a
    new epoch tell: all that was before them is void, or is not read any more.

    :param position: where the target stands; a log goes on above it.
    :param before: positions that the target can be rolled back to, from where the source is read once more.
    """
    if position is None:
        return None
    told = [position.high_order] if position.source in LOADED_SOURCES else []
    again = [_void_below(found) for found in (position, *before)]
    return max(filter(None, (*told, min(again))), default=None)


def _void_below(position: Position) -> str:
    return max(position.truncate_order or "", order_key(int(position.offsets.get("epoch", 0)), 0))


def open_remembered(target: IcebergTable) -> IcebergTable | None:
    """Open the table of a target's remembered deletes; None if there is none."""
    return open_if_there(target.spark, target.catalog, target.name + SUFFIX)


def _made(target: IcebergTable, key: Sequence[str]) -> IcebergTable:
    """Return the table of remembered deletes, whose key has the types that the target's has by now."""
    table = open_remembered(target)
    if table is None:
        return _create(target, key)
    types, there = definition.spark_types(target), set(table.column_names)
    definition.evolve(table, [(k, types[k]) for k in key if k in there])
    return table


def _create(target: IcebergTable, key: Sequence[str]) -> IcebergTable:
    types = definition.spark_types(target)
    columns = [(k, types[k], True) for k in key] + definition.own_columns()
    metrics = {f"write.metadata.metrics.column.{c}": "full" for c in (*key, ORDER_COLUMN)}
    return definition.create_side_table(target.spark, target.catalog, target.name + SUFFIX, columns, properties=metrics)
