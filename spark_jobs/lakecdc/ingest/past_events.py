"""Read events back from a history table: the reverse of ``ingest.apply.events``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakecdc.contract.target import (
    OLD_KEY_COLUMN,
    OP_COLUMN,
    ORDER_COLUMN,
    SOURCE_TABLE_COLUMN,
    TIME_COLUMN,
    UNCHANGED_COLUMN,
)
from lakecdc.ingest.change import Column
from lakecdc.ingest.completion import MAX_KEY_CHANGES
from lakecdc.sql import quoted_column

#: columns that changes_of reads besides the source's
EVENT_COLUMNS = (OP_COLUMN, UNCHANGED_COLUMN, OLD_KEY_COLUMN, ORDER_COLUMN, TIME_COLUMN)


def changes_of(events: DataFrame, columns: Sequence[Column], key: Sequence[str]) -> DataFrame:
    """Convert rows of a history table to a change frame, without TRUNCATEs; missing columns are null.

    :param columns: columns of the rows, including the key.
    """
    named = {c.name: c for c in columns}
    keys = [named[name] for name in key]
    kind = f"struct<{', '.join(f'{quoted_column(c.name)}: {c.type}' for c in keys)}>"
    return events.where(F.col(OP_COLUMN) != "t").select(
        F.col(OP_COLUMN).alias("op"),
        struct_of(events, keys).alias("key"),
        F.when(F.col(OP_COLUMN) != "d", struct_of(events, columns)).alias("row"),
        F.col(UNCHANGED_COLUMN).alias("open"),
        F.from_json(OLD_KEY_COLUMN, kind).alias("old_key"),
        F.col(ORDER_COLUMN).alias("order"),
        F.col(TIME_COLUMN).alias("source_time"),
        *([F.col(SOURCE_TABLE_COLUMN).alias("source_table")] if SOURCE_TABLE_COLUMN in events.columns else []),
    )


def struct_of(rows: DataFrame, columns: Sequence[Column]) -> Expression:
    """Combine columns into a struct, with null for missing ones."""
    there = set(rows.columns)
    values = [F.col(quoted_column(c.name)) if c.name in there else F.lit(None) for c in columns]
    return F.struct(*[value.cast(c.type).alias(c.name) for value, c in zip(values, columns, strict=True)])


def whole_rows(rows: DataFrame) -> DataFrame:
    """Fill the values that a change frame's events omitted from earlier events; additional columns stay.

    :return: the rows without ``open`` and ``old_key``, with the number ``unknown`` of values that no event records,
        which are null.
    """
    columns = rows.schema["row"].dataType.fieldNames()  # type: ignore[attr-defined]
    passed = [name for name in rows.columns if name not in ("row", "open", "old_key")]
    of_key = Window.partitionBy("key").orderBy("order")
    # values known for a key do not apply to a row that was inserted or came from another key
    begins = F.col("op").isin("d", "c", "r") | F.col("old_key").isNotNull()
    numbered = rows.withColumn("life", F.sum(F.when(begins, 1).otherwise(0)).over(of_key))
    of_life = Window.partitionBy("key", "life").orderBy("order")
    known = [f"known_{place}" for place in range(len(columns))]
    for name, place in zip(columns, known, strict=True):
        is_open = F.coalesce(F.array_contains("open", name), F.lit(False))
        # in a struct, because a known value may be null
        value = F.when((F.col("op") != "d") & ~is_open, F.struct(F.col("row")[name].alias("value")))
        numbered = numbered.withColumn(place, F.last(value, ignorenulls=True).over(of_life))
    numbered = numbered.localCheckpoint()
    for _ in range(MAX_KEY_CHANGES):
        any_null = reduce(Expression.__or__, (F.col(name).isNull() for name in known), F.lit(False))
        lacking = numbered.where((F.col("op") != "d") & any_null)
        whose = (F.col("key").alias("to"), F.col("life").alias("in_life"))
        moved = numbered.where("old_key IS NOT NULL").select(*whose, "old_key", F.col("order").alias("moved_at"))
        incomplete = moved.join(lacking.select(*whose).distinct(), ["to", "in_life"])
        if incomplete.isEmpty():
            break
        numbered = _from_old_key(numbered, incomplete, known).localCheckpoint()
    unknown = reduce(Expression.__add__, (F.col(name).isNull().cast("int") for name in known), F.lit(0))
    values = F.struct(*[F.col(place)["value"].alias(name) for name, place in zip(columns, known, strict=True)])
    row = F.when(F.col("op") != "d", values).alias("row")
    return numbered.select(*passed, row, F.when(F.col("op") != "d", unknown).otherwise(0).alias("unknown"))


def _from_old_key(numbered: DataFrame, incomplete: DataFrame, known: Sequence[str]) -> DataFrame:
    before = numbered.where("op <> 'd'").select(
        F.col("key").alias("old_key"), "order", F.struct(*known).alias("values")
    )
    former = (
        incomplete.join(before, "old_key")
        .where("order < moved_at")
        .groupBy("to", "in_life")
        .agg(F.max_by("values", "order").alias("values"))
    )
    joined = numbered.join(former, (F.col("key") == F.col("to")) & (F.col("life") == F.col("in_life")), "left")
    filled = {name: F.coalesce(F.col(name), F.col("values")[name]) for name in known}
    return joined.withColumns(filled).select(*numbered.columns)


def count_unknown(whole: DataFrame) -> int:
    """Count the values of :func:`whole_rows` that no event records."""
    row = whole.agg(F.sum("unknown")).first()
    return row[0] or 0 if row else 0
