"""Fold a batch: per key, the row after the last event, with placeholders filled from earlier events."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakecdc.model.order import void_sql

# lowest order key of a key's events
_FIRST = "first_order"


@dataclass(frozen=True)
class Stats:
    """Facts about the events of a batch, or about its folded rows.

    :param events: number by op.
    :param low_order: lowest order key of the folded rows, or else of an event that may have been applied before; None
        without any.
    :param keys: folded rows.
    :param open_keys: keys whose last event leaves columns open.
    :param deletes: keys whose last event is a delete.
    :param first_order: lowest order key of any event; None if unknown.
    :param filled_keys: keys whose last event left columns open that the fold filled from earlier ones.
    """

    events: dict[str, int]
    low_order: str | None
    high_order: str | None
    keys: int = 0
    open_keys: int = 0
    deletes: int | None = None
    first_order: str | None = None
    filled_keys: int = 0


def fold(changes: DataFrame) -> DataFrame:
    """Reduce a change frame to one row per key.

    :param changes: the change frame of one batch; a folded one, with event counts, is returned unchanged.
    :return: ``key, op, row, open, old_key, order, source_time, late`` of the key's last event, event counts by op, and
        the lowest order key of its events.
    """
    changes = with_late(changes)
    last = F.max_by(F.struct("op", "row", "open", "old_key", "order", "source_time", "late"), "order").alias("last")
    if "n_c" in changes.columns:
        return changes
    counts = [F.count_if(F.col("op") == op).alias(f"n_{op}") for op in "rcud"]
    folded = changes.groupBy("key").agg(last, *counts, F.min("order").alias(_FIRST))
    return folded.select("key", "last.*", *[f"n_{op}" for op in "rcud"], _FIRST)


def without_void(changes: DataFrame, truncate_order: str | None) -> DataFrame:
    """Remove the events that a TRUNCATE with this order key makes void, if there was one."""
    return changes.where(f"NOT {void_sql('`order`', truncate_order)}") if truncate_order else changes


def with_late(changes: DataFrame) -> DataFrame:
    """Return the change frame with its optional column ``late``; by default every event may be late."""
    return changes if "late" in changes.columns else changes.withColumn("late", F.lit(True))


def measure_folded(folded: DataFrame) -> Stats:
    """Measure a folded batch in one pass; the caller persists it."""
    sums = [F.sum(f"n_{op}").alias(op) for op in "rcud"]
    row = folded.agg(
        *sums,
        F.min("order").alias("low"),
        F.max("order").alias("high"),
        F.count("*").alias("keys"),
        F.count_if(is_open()).alias("open_keys"),
        F.count_if(F.col("op") == "d").alias("deletes"),
        (F.min(_FIRST) if _FIRST in folded.columns else F.lit(None)).alias("first"),
    ).first()
    assert row is not None
    return Stats({op: int(row[op] or 0) for op in "rcud"}, *row[len(sums) :])


def is_suspect(mark: str) -> Column:
    """Return the condition that a row may be older than the table's, whose highest order key is ``mark``."""
    return (F.col("order") <= mark) & F.coalesce("late", F.lit(True))


def may_have_been() -> Column:
    """Return the condition that the source may have had a row of the key before; see ``engine.fold.may_have_been``."""
    return F.col("n_c") - F.col("n_d") != F.when(F.col("op") == "d", 0).otherwise(1)


def is_open() -> Column:
    return (F.col("op") != "d") & (F.coalesce(F.size("open"), F.lit(0)) > 0)
