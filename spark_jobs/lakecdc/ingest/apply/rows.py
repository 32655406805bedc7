"""Convert rows of a batch to a table's columns, and cluster them for the write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.staging import columns_of
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.batch import Batch
from lakecdc.key_search.row_ids import COLUMN, RowIds
from lakecdc.model.merge_slots import order_columns
from lakecdc.sql import quoted_column
from lakecdc.writer.frame import Added, stage_frame

# rows per write task; more tasks only make more small files
_ROWS_PER_TASK = 250_000


def row_values(batch: Batch) -> dict[str, Column]:
    """Return the expression of each of the table's columns from a folded row."""
    values = {name: F.col("row")[name] for name in (*(c.name for c in batch.columns), *own_orders(batch))}
    return values | {ORDER_COLUMN: F.col("order"), TIME_COLUMN: F.col("source_time")}


def own_orders(batch: Batch) -> list[str]:
    """Return the order columns of a merged row; a full load leaves them null."""
    merge, names = batch.target.merge, [c.name for c in batch.columns]
    return order_columns(merge, names, batch.key) if merge and not batch.full_load else []


def table_columns(table: IcebergTable, batch: Batch) -> list[Column]:
    """Return a table's columns, filled from a folded row; columns that the source no longer has are null."""
    return columns_of(table, row_values(batch))


def stage_images(
    table: IcebergTable, batch: Batch, rows: DataFrame, keys: int = 0, ids: RowIds | None = None
) -> list[Any]:
    """Write rows other than deletes as data files, uncommitted.

    :param rows: ``op, row, order, source_time``.
    :param keys: number of rows, to size the write; a full load keeps its parallelism instead.
    :param ids: ids of the rows that they replace.
    """
    data = rows.where("op != 'd'").select(*table_columns(table, batch))
    data = cluster_rows(table, data, batch.key, definition.current_spec_id(table), keys, spread=batch.full_load)
    return stage_frame(table, data, added=Added(COLUMN, ids.added_to) if ids is not None else None)


def cluster_rows(
    table: IcebergTable, frame: DataFrame, sort_by: Sequence[str], spec_id: int, rows: int, *, spread: bool = False
) -> DataFrame:
    """Group rows by partition and sort them, for few files with narrow bounds.

    :param rows: number of rows, to size the write.
    :param spread: keep the parallelism of the frame instead.
    """
    by = [F.expr(e) for e in definition.partition_expressions(table, spec_id)]
    order = [*by, *[F.col(quoted_column(k)) for k in sort_by]]
    if not spread:
        frame = frame.repartition(max(1, -(-rows // _ROWS_PER_TASK)), *by)
    elif by:
        frame = frame.repartition(*by)
    return frame.sortWithinPartitions(*order) if order else frame
