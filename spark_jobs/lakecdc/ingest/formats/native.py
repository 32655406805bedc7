"""The second engine: Debezium JSON decoded by DuckDB inside Python tasks, several times faster than in the JVM.

It takes what is plain: envelopes of known columns whose values have an exact text. As soon as a batch holds anything
else (a TRUNCATE, a new column, a value that does not fit, a tombstone without its delete, text that is no JSON), the
whole batch is left to the JVM, which judges such things; so both engines give the same rows.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.ingest.formats.native_task import DecodeTask, supports
from lakecdc.ingest.formats.survey import moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pyspark.sql import Column, DataFrame, Row

    from lakecdc.ingest.formats.envelope import Reading
    from lakecdc.ingest.formats.values import Field

_OPS = "rcud"


@dataclass(frozen=True)
class Native:
    """What the engine made of a batch.

    :param changes: the change frame, persisted; None if the batch is the JVM's.
    :param folded: the frame holds one row per key already, with event counts ``n_r`` to ``n_d``.
    :param reason: why the batch is the JVM's.
    :param newest: source time of the newest event.
    :param high_orders: highest order key by ``topic/partition``.
    """

    changes: DataFrame | None = None
    folded: bool = False
    reason: str | None = None
    events: int = 0
    newest: datetime | None = None
    high_orders: Mapping[str, str] | None = None


def refusal(format_name: str, fields: Sequence[Field], key: Sequence[str]) -> str | None:
    """Why a table's batches are the JVM's from the start; None if they can be tried."""
    if format_name != "debezium-json":
        return f"format {format_name}"
    if importlib.util.find_spec("duckdb") is None:
        return "the Python package duckdb is missing"
    if not key:
        return "the table has no key"
    for field in fields:
        if not supports(field):
            return f"column {field.name} ({field.type}, {field.encoding})"
    return None


def decode_native(
    messages: DataFrame,
    fields: Sequence[Field],
    key: Sequence[str],
    table: str | None,
    reading: Reading,
    marks: Mapping[str, str] | None,
    *,
    events_needed: bool,
    ignored: Sequence[str] = (),
) -> Native:
    """Decode a batch, or tell why not.

    :param messages: the message frame.
    :param table: the source table that is wanted, or its end; None takes all there are if these are one.
    :param marks: highest order key applied by ``topic/partition``; None if there are none to trust.
    :param events_needed: every event is wanted, not only the last one of each key.
    :param ignored: columns of the source that the table leaves out.
    """
    task = DecodeTask(tuple(fields), tuple(key), table, reading.epoch, reading.unavailable_value, tuple(ignored))
    frame = messages.select("topic", "partition", "key", "value", "headers", "arrival").mapInArrow(task, task.schema)
    folded = _folded(frame).persist()
    rows = _facts(folded)
    reason = next((row["odd"] for row in rows if row["odd"]), None)
    if reason is None and any(row["lone"] for row in rows):
        reason = "a tombstone without its delete"
    if reason is None and len({name for row in rows for name in (row["first"], row["last"]) if name}) > 1:
        reason = "events of several source tables"
    if reason:
        folded.unpersist()
        return Native(reason=str(reason))
    newest = max((row["newest"] for row in rows if row["newest"] is not None), default=None)
    told = {
        "events": sum(row["events"] for row in rows),
        "newest": moment(newest) if newest is not None else None,
        "high_orders": {row["partition"]: row["high"] for row in rows if row["high"]},
    }
    if events_needed or any(row["open"] for row in rows):
        folded.unpersist()
        changes = _change_frame(frame.where(F.col("op").isin(*_OPS)), marks).persist()
        return Native(changes, False, None, **told)
    counts = [F.col(f"n_{op}") for op in _OPS]
    return Native(_change_frame(folded.where("op IS NOT NULL"), marks, counts), True, None, **told)


def _folded(frame: DataFrame) -> DataFrame:
    """One row per key: its last event, and what the batch held of it."""
    last = F.max_by(F.struct("op", "row", "open", "old_key", "order", "time_us", "partition"), "order").alias("last")
    counts = [F.count_if(F.col("op") == op).alias(f"n_{op}") for op in (*_OPS, "x")]
    newest = F.max("time_us").alias("newest")
    tables = [F.min("source_table").alias("first_table"), F.max("source_table").alias("last_table")]
    any_open = F.coalesce(F.max(F.size("open") > 0), F.lit(False)).alias("any_open")
    # brought together first, each key is sorted once; Spark's partial aggregation would sort before the shuffle as well
    grouped = (
        frame.repartition("key").groupBy("key").agg(last, *counts, newest, any_open, *tables, F.max("odd").alias("odd"))
    )
    more = ("newest", "any_open", "first_table", "last_table", "odd")
    return grouped.select("key", "last.*", *[f"n_{op}" for op in (*_OPS, "x")], *more)


def _facts(folded: DataFrame) -> list[Row]:
    """By source partition; the highest order key of a partition is the last event of some key."""
    return (
        folded.groupBy("partition")
        .agg(
            F.max("odd").alias("odd"),
            F.max((F.col("n_x") > 0) & (F.col("n_d") == 0)).alias("lone"),
            F.max("any_open").alias("open"),
            F.min("first_table").alias("first"),
            F.max("last_table").alias("last"),
            F.max("newest").alias("newest"),
            F.max("order").alias("high"),
            F.sum(sum((F.col(f"n_{op}") for op in _OPS), F.lit(0))).alias("events"),
        )
        .collect()
    )


def _change_frame(rows: DataFrame, marks: Mapping[str, str] | None, more: Sequence[Column] = ()) -> DataFrame:
    columns = [F.col(c) for c in ("op", "key", "row", "open", "old_key", "order")]
    time = F.timestamp_micros("time_us").alias("source_time")
    if marks is None:
        return rows.select(*columns, time, *more)
    if marks:
        known = F.create_map(*[F.lit(x) for pair in marks.items() for x in pair])
        late = F.coalesce(F.col("order") <= F.try_element_at(known, F.col("partition")), F.lit(True))
    else:
        late = F.lit(True)
    return rows.select(*columns, time, late.alias("late"), *more)
