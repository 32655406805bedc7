"""Events of a history table as a batch."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc import changes
from lakecdc.contract.errors import InputError
from lakecdc.contract.target import OP_COLUMN, ORDER_COLUMN, SOURCE_TABLE_COLUMN, TIME_COLUMN, Target
from lakecdc.iceberg.definition import merge_of, source_types
from lakecdc.ingest.api import Batch, Column, Rows, SourceFacts, changes_of
from lakecdc.moments.stretch import UNTIMED, Stretch, micros, of_no_table, untimed


def batch_of(stretch: Stretch) -> tuple[Batch, int]:
    """Read the events to add to the base as a batch, and count them; refuse lost and incomplete events."""
    with changes.between(stretch.history, stretch.since, stretch.until, key=()) as rows:
        events = rows.where((F.col(TIME_COLUMN) <= micros(stretch.moment)) | F.expr(UNTIMED)).localCheckpoint()
    if not events.where(f"{changes.CHANGE_TYPE} = 'delete'").isEmpty():
        raise InputError(
            f"Cannot restore the moment: events have since been removed from the history table {stretch.history.name}.",
            table=stretch.table.name,
            hint="Restore a later moment, or read one of the table's own snapshots.",
        )
    if count := events.where(UNTIMED).count():
        raise untimed(stretch.table, stretch.history, stretch.moment, count)
    table, merge = stretch.table, merge_of(stretch.table)
    if merge is not None and merge.by_source_table:
        named = f"{SOURCE_TABLE_COLUMN} IS NOT NULL" if SOURCE_TABLE_COLUMN in events.columns else "false"
        if count := events.where(F.col(OP_COLUMN) != "t").where(f"NOT {named}").count():
            raise of_no_table(table, stretch.history, stretch.moment, count)
    columns = tuple(Column(name, kind) for name, kind in source_types(table).items())
    key = tuple(table.identifier_columns)
    newest = emptying(events, stretch.truncated).agg(F.max(ORDER_COLUMN)).first()
    batch = Batch(
        Target(table.name, key, merge=merge),
        key,
        columns,
        Rows(changes_of(events, columns, key)),
        stretch.position,
        truncate_order=newest[0] if newest else None,
        source=SourceFacts(in_order=False),
    )
    return batch, events.count()


def emptying(events: DataFrame, last: str | None) -> DataFrame:
    """Select a history's TRUNCATEs that emptied its table: up to ``last``; later ones did not remove rows."""
    return events.where(F.col(OP_COLUMN) == "t").where(F.col(ORDER_COLUMN) <= (last or ""))


def touched_keys(everything: DataFrame, new: DataFrame) -> DataFrame:
    """Return the keys of some events, and the keys that their rows came from or moved to, as the column ``touched``."""
    touched = new.select(F.col("key").alias("touched")).distinct().localCheckpoint()
    moves = everything.where("old_key IS NOT NULL").select("key", "old_key").distinct().localCheckpoint()
    count = touched.count()
    while not moves.isEmpty():
        beside = (
            moves.join(touched, moves["key"] == touched["touched"])
            .select("old_key")
            .unionAll(moves.join(touched, moves["old_key"] == touched["touched"]).select("key"))
        )
        touched = touched.unionAll(beside).distinct().localCheckpoint()
        before, count = count, touched.count()
        if count == before:
            break
    return touched
