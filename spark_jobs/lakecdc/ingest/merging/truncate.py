"""TRUNCATE of a source table that feeds groups of a merged table, whose other columns other jobs feed."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.merging import ORDER_PREFIX, MergeGroup
from lakecdc.contract.target import Target
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Rows
from lakecdc.ingest.fold import without_void
from lakecdc.model.merge_slots import DELETED
from lakecdc.model.order import time_of, void_sql
from lakecdc.sql import literal, quoted_column, sql_type


def emptied_groups(target: Target) -> list[MergeGroup]:
    """Return the groups that a TRUNCATE at a job's source empties; none if it is not known what it has fed.

    A position remembers one TRUNCATE, below which events are void, so the job must have one source table.
    """
    merge, source = target.merge, target.only_source
    return merge.groups_of(source) if merge and source and merge.on_delete == "group" else []


def with_groups_emptied(table: IcebergTable, batch: Batch) -> tuple[Batch, int]:
    """Return a batch with deletes in the place of its TRUNCATE, one for each row that has a group to empty, and count.

    Rows that are left without a group go, and their orders to the remembered deletes, as after a delete at the source.
    """
    order = batch.truncate_order
    assert order is not None
    orders = [f"{ORDER_PREFIX}{group.title}" for group in emptied_groups(batch.target)]
    # a group whose row was deleted at its source is empty
    columns = [quoted_column(name) for name in orders if name in table.column_names]
    older = [f"(NOT endswith({name}, {literal(DELETED)}) AND {void_sql(name, order)})" for name in columns]
    keys = table.read(columns=[quoted_column(name) for name in batch.key], where=" OR ".join(older) or "false")
    deletes = _deletes(keys, batch).localCheckpoint()
    rows = deletes
    if batch.rows is not None:
        events = without_void(batch.rows.every_event().frame, order)
        refuse_unplaced_reads(events, order, table.name)
        events = events.withColumn("key", F.col("key").cast(sql_type(deletes.schema["key"].dataType)))
        named = {name: F.lit(None).cast(events.schema[name].dataType) for name in ("row", "open", "old_key")}
        rows = events.unionByName(deletes.withColumns(named), allowMissingColumns=True)
    return replace(batch, rows=Rows(rows), truncate_order=None), deletes.count()


def refuse_unplaced_reads(events: DataFrame, order: str, table: str) -> None:
    """Refuse snapshot reads without a log position that came after a TRUNCATE: emptied groups have a higher order.

    :param events: without those that the TRUNCATE makes void.
    """
    if not events.where(F.col("order") < order).isEmpty():
        raise InputError(
            "Its source table was truncated, and rows that were read later without a position in the log would lose to "
            "the emptied groups.",
            table=table,
            hint="Send these rows as changes, or let all jobs feed a new table.",
        )


def _deletes(keys: DataFrame, batch: Batch) -> DataFrame:
    order, key = str(batch.truncate_order), F.struct(*[quoted_column(name) for name in batch.key])
    values = {
        "op": F.lit("d"),
        "key": key,
        "row": F.when(F.lit(False), key),
        "open": F.lit(None).cast("array<string>"),
        "old_key": F.when(F.lit(False), key),
        "order": F.lit(order),
        "source_time": F.timestamp_millis(F.lit(time_of(order))),
        "late": F.lit(True),
    }
    return keys.select(*[value.alias(name) for name, value in values.items()])
