"""The versions of rows, told from their events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from lakecdc.exact_values import exact_value
from lakecdc.ingest.completion import MAX_KEY_CHANGES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
#: what a version has beside the row, with Spark SQL types
OWN = {VALID_FROM: "timestamp", VALID_TO: "timestamp", IS_CURRENT: "boolean"}


@dataclass(frozen=True)
class Versions:
    """What came of events.

    :param rows: ``key, row, valid_from, valid_to, is_current``, ``valid_to`` is null of those that hold.
    :param unknown: values that the source left out and no event tells; null in the rows.
    """

    rows: DataFrame
    unknown: int


def versions(events: DataFrame, emptied: DataFrame) -> Versions:
    """Tell the versions of rows, in the order of the source.

    A version ends with the next event of its key, with a TRUNCATE, or with a full load that lacks its key. Equal
    versions in a row are one, and one that began and ended at one moment, as within a transaction, is none.

    :param events: a change frame with all events of its keys (see ``lakecdc.ingest.formats.changes``), held by Spark.
    :param emptied: ``order, source_time`` of the TRUNCATEs that have emptied the table and of its full loads, which
        have an order key ``through`` of their last row too, null of TRUNCATEs.
    """
    keys = events.select("key").distinct()
    closing = keys.crossJoin(F.broadcast(emptied))
    loaded = events.where("op = 'r'").select(F.col("key").alias("loaded"), F.col("order").alias("at"))
    found = (F.col("key") == F.col("loaded")) & F.col("at").between(F.col("order"), F.col("through"))
    closing = closing.join(loaded, found, "left_anti").drop("through")
    rows = events.select("key", "op", "row", "open", "old_key", "order", "source_time").unionByName(
        closing.withColumn("op", F.lit("d")), allowMissingColumns=True
    )
    whole, unknown = whole_rows(rows)
    return Versions(_ranges(whole), unknown)


def whole_rows(rows: DataFrame) -> tuple[DataFrame, int]:
    """Fill the values that events left out from the events before.

    :param rows: a change frame; columns of its own stay.
    :return: the rows, without ``open`` and ``old_key``, and the number of values that nobody tells, null in the rows.
    """
    columns = rows.schema["row"].dataType.fieldNames()  # type: ignore[attr-defined]
    kept = [name for name in rows.columns if name not in ("row", "open", "old_key")]
    of_key = Window.partitionBy("key").orderBy("order")
    # what was known of a key before does not hold for a row that has been inserted, or has come from another key
    begins = F.col("op").isin("d", "c", "r") | F.col("old_key").isNotNull()
    numbered = rows.withColumn("life", F.sum(F.when(begins, 1).otherwise(0)).over(of_key))
    of_life = Window.partitionBy("key", "life").orderBy("order")
    known = [f"told_{place}" for place in range(len(columns))]
    for name, place in zip(columns, known, strict=True):
        # in a struct, since a value that is known may be null
        told = F.when((F.col("op") != "d") & ~_is_open(name), F.struct(F.col("row")[name].alias("value")))
        numbered = numbered.withColumn(place, F.last(told, ignorenulls=True).over(of_life))
    numbered = numbered.localCheckpoint()
    for _ in range(MAX_KEY_CHANGES):
        lacking = numbered.where((F.col("op") != "d") & _any_null(known))
        whose = (F.col("key").alias("to"), F.col("life").alias("in_life"))
        moved = numbered.where("old_key IS NOT NULL").select(*whose, "old_key", F.col("order").alias("moved_at"))
        wanted = moved.join(lacking.select(*whose).distinct(), ["to", "in_life"])
        if wanted.isEmpty():
            break
        numbered = _from_old_key(numbered, wanted, known).localCheckpoint()
    last = numbered.where("op <> 'd'")
    unknown = last.select(*[F.count_if(F.col(name).isNull()).alias(name) for name in known]).first()
    values = F.struct(*[F.col(place)["value"].alias(name) for name, place in zip(columns, known, strict=True)])
    row = F.when(F.col("op") != "d", values).alias("row")
    return numbered.select(*kept, row), sum(unknown or ())


def _from_old_key(numbered: DataFrame, wanted: DataFrame, known: Sequence[str]) -> DataFrame:
    """Take over what was known of a row under the key that it had."""
    before = numbered.where("op <> 'd'").select(
        F.col("key").alias("old_key"), "order", F.struct(*known).alias("values")
    )
    found = (
        wanted.join(before, "old_key")
        .where("order < moved_at")
        .groupBy("to", "in_life")
        .agg(F.max_by("values", "order").alias("values"))
    )
    joined = numbered.join(found, (F.col("key") == F.col("to")) & (F.col("life") == F.col("in_life")), "left")
    filled = {name: F.coalesce(F.col(name), F.col("values")[name]) for name in known}
    return joined.withColumns(filled).select(*numbered.columns)


def _ranges(rows: DataFrame) -> DataFrame:
    of_key = Window.partitionBy("key").orderBy("order")
    comparable = exact_row(rows)
    before = F.lag(F.struct("op", comparable.alias("row"))).over(of_key)
    same = (F.col("op") != "d") & (before["op"] != "d") & before["row"].eqNullSafe(comparable)
    changed = rows.withColumn("same", F.coalesce(same, F.lit(False))).where("NOT same")
    # clocks of a source may go back, its order does not
    sofar = of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    timed = changed.withColumn(VALID_FROM, F.max("source_time").over(sofar))
    following = F.lead(F.struct("op", F.col(VALID_FROM).alias("at"))).over(of_key)
    ended = timed.withColumns({VALID_TO: following["at"], IS_CURRENT: following.isNull()}).where("op <> 'd'")
    # also where the source tells no times
    held = ended.where(f"coalesce({VALID_TO} > {VALID_FROM}, true)")
    return held.select("key", "row", VALID_FROM, VALID_TO, IS_CURRENT)


def exact_row(rows: DataFrame) -> Column:
    """Write the column ``row`` as Spark compares it exactly."""
    return exact_value(F.col("row"), rows.schema["row"].dataType)


def _is_open(name: str) -> Column:
    return F.coalesce(F.array_contains("open", name), F.lit(False))


def _any_null(names: Sequence[str]) -> Column:
    found = F.lit(False)
    for name in names:
        found = found | F.col(name).isNull()
    return found
