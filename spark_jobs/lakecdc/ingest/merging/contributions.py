"""Frames of contributions to the rows of a merged table, and their merge by tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg.core_time import counted
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.erased import erased_keys
from lakecdc.ingest.fold import is_suspect
from lakecdc.ingest.merging.combine import REMEMBERED, SEPARATOR, STORED, CombineTask, Rules
from lakecdc.sql import quoted_column

_COLUMNS = "key", "op", "order", "source_time", "source_table", "open", "row"


def contributions_of(
    events: DataFrame,
    stored: DataFrame | None,
    deletes: DataFrame | None,
    rules: Rules,
    truncate_order: str | None = None,
) -> DataFrame:
    """Return the contributions of a batch's events, and of what the table has of their keys.

    :param events: a change frame with ``source_table``.
    :param stored: rows of the table; None without any.
    :param deletes: deletes that the table remembers; None without any.
    :param truncate_order: order key of a TRUNCATE, below which rows of the table are void.
    """
    contributions = _of_events(events, rules)
    if stored is not None:
        if truncate_order:
            stored = stored.where(F.coalesce(ORDER_COLUMN, F.lit("")) >= truncate_order)
        contributions = contributions.unionByName(_of_rows(stored, rules))
    if deletes is not None:
        contributions = contributions.unionByName(_of_rows(deletes, rules, remembered=True))
    return contributions


def _of_events(events: DataFrame, rules: Rules) -> DataFrame:
    """Return the contributions of a batch's events.

    :param events: a change frame with ``source_table``.
    """
    if rules.merge.on_delete == "ignore":
        events = events.where("op != 'd'")
    there = {*events.select("row.*").columns}
    values = [
        (F.col("row")[c.name] if c.name in there else F.lit(None)).cast(c.type).alias(c.name) for c in rules.columns
    ]
    orders = [F.lit(None).cast("string").alias(name) for name in rules.order_columns]
    kinds = {c.name: c.type for c in rules.columns}
    key = F.struct(*[F.col("key")[name].cast(kinds[name]).alias(name) for name in rules.key])
    return events.withColumns({"key": key, "row": F.struct(*values, *orders)}).select(*_COLUMNS)


def without_erased(events: DataFrame, table: IcebergTable, key: Sequence[str], mark: str) -> DataFrame:
    """Leave out events up to an order key of keys that were erased from the table."""
    suspects = events.where(is_suspect(mark)).select("key", "order")
    erased = erased_keys(table, suspects, key)
    if erased is None:
        return events
    void = F.broadcast(erased.distinct().withColumn("erased", F.lit(True)))
    return events.join(void, "key", "left").where(~(is_suspect(mark) & F.col("erased").isNotNull()))


def _of_rows(rows: DataFrame, rules: Rules, *, remembered: bool = False) -> DataFrame:
    """Return the contributions of rows of the table.

    :param rows: columns by their names; missing ones are null.
    :param remembered: they are deletes that the table remembers instead.
    """
    there = {*rows.columns}

    def value(name: str, kind: str) -> Column:
        return (F.col(quoted_column(name)) if name in there else F.lit(None)).cast(kind).alias(name)

    kinds = {c.name: c.type for c in rules.columns} | dict.fromkeys(rules.order_columns, "string")
    return rows.select(
        F.struct(*[value(k, kinds[k]) for k in rules.key]).alias("key"),
        F.lit(REMEMBERED if remembered else STORED).alias("op"),
        F.coalesce(value(ORDER_COLUMN, "string"), F.lit("")).alias("order"),
        value(TIME_COLUMN, "timestamp").alias("source_time"),
        F.lit(None).cast("string").alias("source_table"),
        F.lit(None).cast("array<string>").alias("open"),
        F.struct(*[value(name, kind) for name, kind in kinds.items()]).alias("row"),
    )


def merged(
    contributions: DataFrame, rules: Rules, *, left_out: Collection[str] = (), removes: bool = True
) -> DataFrame:
    """Merge the contributions of each key; parameters and columns are those of ``combine.combine``."""
    spark, kinds = contributions.sparkSession, {field.name: field.dataType for field in contributions.schema}
    texts = {name: kinds[name] for name in ("open", "order", "source_time")}
    counts = {"stored_order": T.StringType(), "applied": T.LongType(), "deletes": T.LongType()}
    columns = {"key": kinds["key"], "op": T.StringType(), "row": kinds["row"], **texts, **counts}
    schema = T.StructType([T.StructField(name, kind) for name, kind in columns.items()])
    task = CombineTask(rules, tuple(left_out), removes)
    # Spark takes ten times as long to hand rows to a task if one of their columns is a list
    flat = contributions.withColumn("open", F.array_join("open", SEPARATOR))
    by_key = flat.repartition(*[F.col("key")[name] for name in rules.key])
    return by_key.mapInArrow(counted(spark, task), schema)
