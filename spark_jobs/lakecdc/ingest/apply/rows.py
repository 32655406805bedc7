"""Rows of a batch in the columns of a table, clustered as they are to be written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.staging import stage_rows
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql import Column, DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.batch import Batch

# rows one write task takes; more tasks only make more small files
_ROWS_PER_TASK = 250_000


def table_columns(table: IcebergTable, batch: Batch) -> list[Column]:
    """Return a table's columns, filled from a folded row; those that the source no longer has are null."""
    wanted = {c.name for c in batch.columns}
    own = {ORDER_COLUMN: F.col("order"), TIME_COLUMN: F.col("source_time")}
    columns = []
    for f in table.spark.table(table.sql_name).schema.fields:
        value = own.get(f.name)
        if value is None:
            value = (F.col("row")[f.name] if f.name in wanted else F.lit(None)).cast(f.dataType)
        columns.append(value.alias(f.name))
    return columns


def stage_images(table: IcebergTable, batch: Batch, rows: DataFrame, keys: int = 0) -> list[Any]:
    """Write the rows that are no deletes as data files, uncommitted.

    :param rows: ``op, row, order, source_time``.
    :param keys: number of rows, to size the write; a full load keeps its parallelism instead.
    """
    data = rows.where("op != 'd'").select(*table_columns(table, batch))
    data = cluster_rows(table, data, batch.key, definition.current_spec_id(table), keys, spread=batch.full_load)
    return [f for f in stage_rows(table, data) if int(f.recordCount())]


def cluster_rows(
    table: IcebergTable, frame: DataFrame, sort_by: Sequence[str], spec_id: int, rows: int, *, spread: bool = False
) -> DataFrame:
    """Bring each partition's rows together and sort them, so that files are few and their bounds narrow.

    :param sort_by: columns, such as the key.
    :param rows: how many there are, to size the write.
    :param spread: keep the parallelism of the frame instead.
    """
    by = [F.expr(e) for e in definition.partition_expressions(table, spec_id)]
    order = [*by, *[F.col(quoted_column(k)) for k in sort_by]]
    if not spread:
        frame = frame.repartition(max(1, -(-rows // _ROWS_PER_TASK)), *by)
    elif by:
        frame = frame.repartition(*by)
    return frame.sortWithinPartitions(*order) if order else frame
