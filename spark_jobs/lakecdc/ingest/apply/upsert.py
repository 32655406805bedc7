"""Mode ``upsert``: the table holds the source's current rows; changes cost the same however large it is.

New rows become data files, their keys equality deletes for every live partition spec, both in one ``RowDelta`` with
the source positions in its summary, behind the fence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.failpoints import reach
from lakecdc.iceberg import definition
from lakecdc.iceberg.commit import RowChanges, append_changes, row_filter
from lakecdc.iceberg.definition import quoted_column
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import discard, stage_equality_deletes, stage_rows
from lakecdc.ingest.tables import check_partitioning
from lakecdc.metadata import names

if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable, Snapshot
    from lakecdc.ingest.change import TableBatch
    from lakecdc.metadata.positions import Position

# rows one write task takes; more tasks only make more small files
_ROWS_PER_TASK = 250_000


@dataclass(frozen=True)
class Applied:
    """What a commit wrote.

    :param data_files: number of data files.
    :param delete_files: number of equality-delete files.
    :param rows: rows in the data files.
    :param bytes: size of all these files.
    """

    snapshot: Snapshot
    data_files: int
    delete_files: int
    rows: int
    bytes: int


def upsert(
    table: IcebergTable,
    batch: TableBatch,
    rows: DataFrame | None,
    keys: int,
    position: Position,
    started_from: str | None,
) -> Applied:
    """Commit one folded batch.

    :param rows: ``key, op, row, order, source_time``, one row per key; None for a commit of the position alone.
    :param keys: number of rows, to size the write.
    :param position: where the source stands after the batch.
    :param started_from: summary text of the position the batch started from, for the fence.
    :raises ConflictError: another run has moved the positions.
    """
    specs = definition.live_specs(table)
    check_partitioning(table, batch.key, sorted({*specs, definition.current_spec_id(table)}))
    reach("before_staging")
    data_files: list[Any] = []
    delete_files: list[Any] = []
    try:
        if rows is not None:
            data_files = _stage_data(table, batch, rows, keys)
            if not batch.full_load:
                delete_files = _stage_deletes(table, batch, rows, keys, list(specs))
        reach("after_staging")
        changes = RowChanges(
            data_files,
            delete_files,
            summary={names.POSITIONS: position.encode(), names.JOB: "ingest", **_read_through(position)},
        )
        reach("before_commit")
        truncate = row_filter(table, ORDER_COLUMN, "lessThan", batch.truncate_order) if batch.truncate_order else None
        snapshot = append_changes(
            table, changes, PositionFence(started_from), truncate=truncate, tag=names.POSITIONS_TAG
        )
    except (InputError, ConflictError):
        # after any other error the commit may have arrived: then the files stay, for orphan removal to judge
        discard(table, [*data_files, *delete_files])
        raise
    reach("after_commit")
    written = [*data_files, *delete_files]
    return Applied(
        snapshot,
        len(data_files),
        len(delete_files),
        sum(int(f.recordCount()) for f in data_files),
        sum(int(f.fileSizeInBytes()) for f in written),
    )


def _stage_data(table: IcebergTable, batch: TableBatch, rows: DataFrame, keys: int) -> list[Any]:
    wanted = {c.name for c in batch.columns}
    columns = [
        (F.col("row")[f.name] if f.name in wanted else F.lit(None)).cast(f.dataType).alias(f.name)
        for f in table.spark.table(table.sql_name).schema.fields
        if f.name not in (ORDER_COLUMN, TIME_COLUMN)
    ]
    data = rows.where("op != 'd'").select(
        *columns, F.col("order").alias(ORDER_COLUMN), F.col("source_time").alias(TIME_COLUMN)
    )
    data = _clustered(table, data, batch.key, definition.current_spec_id(table), keys, spread=batch.full_load)
    return [f for f in stage_rows(table, data) if int(f.recordCount())]


def _stage_deletes(
    table: IcebergTable, batch: TableBatch, rows: DataFrame, keys: int, spec_ids: list[int]
) -> list[Any]:
    keyed = rows.select(*[F.col("key")[k].alias(k) for k in batch.key])
    files: list[Any] = []
    for spec_id in spec_ids:
        clustered = _clustered(table, keyed, batch.key, spec_id, keys)
        files += stage_equality_deletes(table, clustered, batch.key, spec_id)
    return files


def _clustered(
    table: IcebergTable, frame: DataFrame, key: tuple[str, ...], spec_id: int, rows: int, *, spread: bool = False
) -> DataFrame:
    """Bring each partition's rows together and sort them by key, so that files are few and their bounds narrow."""
    by = [F.expr(e) for e in definition.partition_expressions(table, spec_id)]
    order = [*by, *[F.col(quoted_column(k)) for k in key]]
    if not spread:
        frame = frame.repartition(max(1, -(-rows // _ROWS_PER_TASK)), *by)
    elif by:
        frame = frame.repartition(*by)
    return frame.sortWithinPartitions(*order)


def _read_through(position: Position) -> dict[str, str]:
    return {names.READ_THROUGH: position.read_through} if position.read_through else {}


def with_high_order(position: Position, *orders: str | None) -> Position:
    """The position with the highest of some order keys."""
    return replace(position, high_order=max((o for o in orders if o), default=None))
