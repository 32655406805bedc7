"""Modes ``append`` and ``history``: rows are only added.

``history`` keeps one row per change event: the columns in the event (for a delete usually only the key),
``_lakecdc_op`` (``r`` full load, ``c``, ``u``, ``d``, ``t`` TRUNCATE), the unchanged columns that the source left out
(null in the row, named in ``_lakecdc_unchanged``), the row's old key (``_lakecdc_old_key``, JSON), order key and source
time; next to a table with groups of source tables also ``_lakecdc_source_table``. ``append`` keeps only the row images.

A repeated event is recognized by its order key and values; only late events that are not above the table's highest
order key are looked up.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import (
    OLD_KEY_COLUMN,
    OP_COLUMN,
    ORDER_COLUMN,
    SOURCE_TABLE_COLUMN,
    TIME_COLUMN,
    UNCHANGED_COLUMN,
)
from lakecdc.iceberg import definition
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import columns_of
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.apply import full_load
from lakecdc.ingest.apply.packed import stage_events, writable_events
from lakecdc.ingest.apply.publish import Applied, Commit, Staged, following, publish
from lakecdc.ingest.apply.rows import cluster_rows
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.floor import known_floor
from lakecdc.ingest.fold import Stats
from lakecdc.metadata.positions import Position, SideOf
from lakecdc.model.order import time_of
from lakecdc.sql import exact_json, holds, quoted_column
from lakecdc.writer.frame import stage_frame

_OPS = "rcud"
_EXAMPLES = {"u": "an update", "d": "a delete"}


def measure(batch: Batch) -> Stats:
    """Count a batch's events in one pass, unless tasks have done so."""
    if batch.rows is None:
        return Stats(dict.fromkeys(_OPS, 0), None, None)
    events = batch.rows.every_event()
    if events.stats is not None:
        return events.stats
    changes = events.frame
    counts = [F.count_if(F.col("op") == op).alias(op) for op in _OPS]
    late = F.coalesce("late", F.lit(True)) if "late" in changes.columns else F.lit(True)
    low = F.min(F.when(late, F.col("order"))).alias("low")
    row = changes.agg(*counts, low, F.max("order").alias("high")).first()
    assert row is not None
    return Stats({op: int(row[op]) for op in _OPS}, row["low"], row["high"])


def check(batch: Batch) -> None:
    """Raise an InputError if a batch changes or removes rows of a table of mode ``append``, before the table exists."""
    if batch.target.mode == "append" and not batch.full_load:
        _refuse_changes(batch, measure(batch))


def append_events(
    table: IcebergTable,
    batch: Batch,
    measured: Stats | None,
    before: Position | None,
    started_from: str | None,
    side_of: SideOf | None = None,
) -> tuple[Applied, Position]:
    """Commit the events of a batch to a table of mode ``append`` or ``history``.

    :param measured: None for a full load, whose rows are all new.
    :param before: the table's position.
    :param started_from: text of that position in the summary, for the fence.
    :param side_of: what a history table records about its target; None for a target.
    :return: the commit's result, and the committed position.
    :raises InputError: mode ``append``, and the events change or remove rows; nothing is written.
    :raises ConflictError: another run has changed the positions.
    """
    if batch.target.mode == "append":
        _refuse_changes(batch, measured)
    mark = before.high_order if before else None
    # events that the table may have, or that come with a TRUNCATE, are not written directly
    late = measured is None or (mark and measured.low_order and measured.low_order <= mark)
    packed = None if late or batch.truncate_order else writable_events(table, batch)
    rows = None if packed else events_of(table, batch)
    if measured is not None and rows is not None:
        rows = _not_held(table, batch, rows, measured, mark)
    high = measured.high_order if measured else None

    def stage(staged: Staged) -> None:
        if batch.full_load and batch.target.mode == "append":
            full_load.stage(table, batch, staged)
        elif packed is not None:
            stage_events(table, batch, packed, staged)
        elif rows is not None:
            count, spec_id = sum(measured.events.values()) if measured else 0, definition.current_spec_id(table)
            # in event order, so that replays are looked up in few files
            ordered = cluster_rows(table, rows, [ORDER_COLUMN], spec_id, count, spread=batch.full_load)
            staged.data_files += stage_frame(table, ordered)
            if side_of is None:
                full_load.keep_misfits(batch)

    position = following(batch.position, before, high, truncate_order=batch.truncate_order)
    # a history is never replaced, even if its target is
    replaces = batch.commit.replaces and batch.target.mode == "append"
    fence = PositionFence(started_from, floor=known_floor(table, batch))
    note, moment = (side_of.encode(), "history_") if side_of else ({}, "")
    commit = Commit(position, fence, replaces=replaces, note=note, moment=moment)
    applied = publish(table, stage, commit, batch)
    return applied, position


def events_of(table: IcebergTable, batch: Batch) -> DataFrame | None:
    """Return the events in the table's columns; None if there are none."""
    rows = None
    if batch.rows is not None:
        events = batch.rows.every_event().frame
        rows = events.select(*columns_of(table, _values(batch, names_tables="source_table" in events.columns)))
    if batch.truncate_order and batch.target.mode == "history":
        order, moment = F.lit(batch.truncate_order), F.timestamp_millis(F.lit(time_of(batch.truncate_order)))
        values = {OP_COLUMN: F.lit("t"), ORDER_COLUMN: order, TIME_COLUMN: moment}
        truncate = table.spark.range(1).select(*columns_of(table, values))
        rows = truncate if rows is None else rows.unionByName(truncate)
    return rows


def _values(batch: Batch, *, names_tables: bool) -> dict[str, Column]:
    """Return the expression of each column of the table.

    :param names_tables: the events have a column for their source tables.
    """
    values, source_table = {}, F.lit(batch.target.only_source)
    for name in (c.name for c in batch.columns):
        left_out = F.coalesce(F.array_contains("open", name), F.lit(False))
        value = F.when(~left_out, F.col("row")[name])
        values[name] = F.coalesce(value, F.col("key")[name]) if name in batch.key else value
    return values | {
        OP_COLUMN: F.col("op"),
        ORDER_COLUMN: F.col("order"),
        TIME_COLUMN: F.col("source_time"),
        UNCHANGED_COLUMN: F.when(F.size("open") > 0, F.col("open")),
        OLD_KEY_COLUMN: exact_json("old_key") if batch.key else F.lit(None),
        SOURCE_TABLE_COLUMN: F.coalesce("source_table", source_table) if names_tables else source_table,
    }


def _refuse_changes(batch: Batch, measured: Stats | None) -> None:
    what = "a TRUNCATE" if batch.truncate_order else None
    if what is None and measured is not None:
        what = next((example for op, example in _EXAMPLES.items() if measured.events[op]), None)
    if what is not None:
        raise InputError(
            f"The source has {what}, and mode append can only add rows; nothing of the batch was written.",
            table=batch.target.table,
            hint="Feed a new table in mode history to keep every event, or in mode upsert to keep the current rows.",
        )


def _not_held(table: IcebergTable, batch: Batch, rows: DataFrame, measured: Stats, mark: str | None) -> DataFrame:
    """Remove events that are twice in the batch or already in the table."""
    compared = _compared(table, batch)
    if not batch.source.in_order:
        rows = rows.dropDuplicates(compared)
    low = min(filter(None, (measured.low_order, batch.truncate_order)), default=None)
    if not mark or not low or low > mark:
        return rows
    stored = table.read().where(F.col(ORDER_COLUMN).between(low, mark)).select(*map(quoted_column, compared))
    same = {c: rows[quoted_column(c)].eqNullSafe(stored[quoted_column(c)]) for c in compared if c != ORDER_COLUMN}
    if SOURCE_TABLE_COLUMN in same:
        # rows of before the column existed may be of any table
        same[SOURCE_TABLE_COLUMN] |= stored[SOURCE_TABLE_COLUMN].isNull()
    on = reduce(lambda a, b: a & b, same.values(), rows[ORDER_COLUMN] == stored[ORDER_COLUMN])
    return rows.join(stored, on, "left_anti")


def _compared(table: IcebergTable, batch: Batch) -> list[str]:
    """Return the columns that distinguish events; Spark cannot compare maps and variants."""
    there = {c.name for c in batch.columns}
    there |= {ORDER_COLUMN, OP_COLUMN, UNCHANGED_COLUMN, OLD_KEY_COLUMN, SOURCE_TABLE_COLUMN}
    fields = table.spark.table(table.sql_name).schema.fields
    return [f.name for f in fields if f.name in there and not holds(f.dataType, "map", "variant")]
