"""Versions of rows, derived from their events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from lakecdc.ingest.api import MAX_KEY_CHANGES
from lakecdc.sql import exact_value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
#: columns of a version beside the row, with Spark SQL types
OWN = {VALID_FROM: "timestamp", VALID_TO: "timestamp", IS_CURRENT: "boolean"}


@dataclass(frozen=True)
class Versions:
    """Versions derived from events.

    :param rows: ``key, row, valid_from, valid_to, is_current``; ``valid_to`` is null for current versions.
    :param unknown: number of values that the source omitted and no event has; null in the rows.
    """

    rows: DataFrame
    unknown: int


def versions(events: DataFrame, emptied: DataFrame) -> Versions:
    """Derive the versions of rows, in source order.

    A version ends with the next event of its key, with a TRUNCATE, or with a full load that lacks its key. Consecutive
    equal versions are one, and a version that began and ended at the same time, as within a transaction, is dropped.

    :param events: a change frame with all events of its keys (see ``lakecdc.ingest.formats.changes``), checkpointed by
        Spark.
    :param emptied: ``order, source_time`` of the TRUNCATEs that emptied the table and of its full loads, with the order
        key ``through`` of a load's last row, null for TRUNCATEs.
    """
    keys = events.select("key").distinct()
    closing = keys.crossJoin(F.broadcast(emptied))
    loaded = events.where("op = 'r'").select(F.col("key").alias("loaded"), F.col("order").alias("at"))
    in_load = (F.col("key") == F.col("loaded")) & F.col("at").between(F.col("order"), F.col("through"))
    closing = closing.join(loaded, in_load, "left_anti").drop("through")
    rows = events.select("key", "op", "row", "open", "old_key", "order", "source_time").unionByName(
        closing.withColumn("op", F.lit("d")), allowMissingColumns=True
    )
    whole, unknown = whole_rows(rows)
    return Versions(_ranges(whole), unknown)


def whole_rows(rows: DataFrame) -> tuple[DataFrame, int]:
    """Fill the values that events omitted from earlier events.

    :param rows: a change frame; additional columns stay.
    :return: the rows without ``open`` and ``old_key``, and the number of values recorded nowhere, null in the rows.
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
        # in a struct, since a value that is known may be null
        value = F.when((F.col("op") != "d") & ~_is_open(name), F.struct(F.col("row")[name].alias("value")))
        numbered = numbered.withColumn(place, F.last(value, ignorenulls=True).over(of_life))
    numbered = numbered.localCheckpoint()
    for _ in range(MAX_KEY_CHANGES):
        lacking = numbered.where((F.col("op") != "d") & _any_null(known))
        whose = (F.col("key").alias("to"), F.col("life").alias("in_life"))
        moved = numbered.where("old_key IS NOT NULL").select(*whose, "old_key", F.col("order").alias("moved_at"))
        incomplete = moved.join(lacking.select(*whose).distinct(), ["to", "in_life"])
        if incomplete.isEmpty():
            break
        numbered = _from_old_key(numbered, incomplete, known).localCheckpoint()
    last = numbered.where("op <> 'd'")
    unknown = last.select(*[F.count_if(F.col(name).isNull()).alias(name) for name in known]).first()
    values = F.struct(*[F.col(place)["value"].alias(name) for name, place in zip(columns, known, strict=True)])
    row = F.when(F.col("op") != "d", values).alias("row")
    return numbered.select(*passed, row), sum(unknown or ())


def _from_old_key(numbered: DataFrame, incomplete: DataFrame, known: Sequence[str]) -> DataFrame:
    """Copy the values known for a row under its former key."""
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


def _ranges(rows: DataFrame) -> DataFrame:
    of_key = Window.partitionBy("key").orderBy("order")
    comparable = exact_row(rows)
    before = F.lag(F.struct("op", comparable.alias("row"))).over(of_key)
    same = (F.col("op") != "d") & (before["op"] != "d") & before["row"].eqNullSafe(comparable)
    changed = rows.withColumn("same", F.coalesce(same, F.lit(False))).where("NOT same")
    # a source's clock may go back, its order does not
    sofar = of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    timed = changed.withColumn(VALID_FROM, F.max("source_time").over(sofar))
    following = F.lead(F.struct("op", F.col(VALID_FROM).alias("at"))).over(of_key)
    ended = timed.withColumns({VALID_TO: following["at"], IS_CURRENT: following.isNull()}).where("op <> 'd'")
    # also if the source provides no times
    valid = ended.where(f"coalesce({VALID_TO} > {VALID_FROM}, true)")
    return valid.select("key", "row", VALID_FROM, VALID_TO, IS_CURRENT)


def exact_row(rows: DataFrame) -> Column:
    """Convert the column ``row`` to a form that Spark compares exactly."""
    return exact_value(F.col("row"), rows.schema["row"].dataType)


def _is_open(name: str) -> Column:
    return F.coalesce(F.array_contains("open", name), F.lit(False))


def _any_null(names: Sequence[str]) -> Column:
    condition = F.lit(False)
    for name in names:
        condition = condition | F.col(name).isNull()
    return condition
