"""Events of a history table as ingestion has taken them: what ``ingest.apply.events`` writes, read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc import changes
from lakecdc.contract.errors import InputError
from lakecdc.contract.target import OLD_KEY_COLUMN, OP_COLUMN, ORDER_COLUMN, TIME_COLUMN, UNCHANGED_COLUMN, Target
from lakecdc.iceberg.definition import source_types
from lakecdc.ingest.change import Column, TableBatch
from lakecdc.moments.stretch import micros
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import Column as Expression
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.moments.stretch import Stretch


def batch_of(stretch: Stretch) -> tuple[TableBatch, int]:
    """The events that are to be added to the base, as a batch of the table, and their number; they are read at once.

    :raises InputError: the history table has lost some.
    """
    with changes.between(stretch.history, stretch.since, stretch.until, key=()) as rows:
        events = rows.where(F.col(TIME_COLUMN) <= micros(stretch.moment)).localCheckpoint()
    if not events.where(f"{changes.CHANGE_TYPE} = 'delete'").isEmpty():
        raise InputError(
            f"Events have been removed from the history table {stretch.history.name} since, "
            "so that the moment cannot be told.",
            table=stretch.table.name,
            hint="Restore a later moment, or read one of the table's own snapshots.",
        )
    return _batch(stretch, events), events.count()


def _batch(stretch: Stretch, events: DataFrame) -> TableBatch:
    table = stretch.table
    columns = tuple(Column(name, kind) for name, kind in source_types(table).items())
    key = tuple(table.identifier_columns)
    # where the target's on_truncate keeps the rows, a TRUNCATE lies above the last one that has emptied the table
    emptied = events.where(F.col(OP_COLUMN) == "t").where(F.col(ORDER_COLUMN) <= (stretch.truncated or ""))
    found = emptied.agg(F.max(ORDER_COLUMN)).first()
    return TableBatch(
        Target(table.name, key),
        key,
        columns,
        changes_of(events, table, columns),
        stretch.position,
        in_order=False,
        truncate_order=found[0] if found else None,
    )


def changes_of(events: DataFrame, table: IcebergTable, columns: tuple[Column, ...]) -> DataFrame:
    """Rows of a history table as a change frame, without those of TRUNCATEs.

    :param table: whose history it is.
    :param columns: of the table; null where the history table does not have them.
    """
    kinds, there = {c.name: c.type for c in columns}, set(events.columns)

    def value(name: str) -> Expression:
        found = F.col(quoted_column(name)) if name in there else F.lit(None)
        return found.cast(kinds[name]).alias(name)

    key = table.identifier_columns
    kind = f"struct<{', '.join(f'{quoted_column(k)}: {kinds[k]}' for k in key)}>"
    row = F.struct(*map(value, kinds))
    return events.where(F.col(OP_COLUMN) != "t").select(
        F.col(OP_COLUMN).alias("op"),
        F.struct(*map(value, key)).alias("key"),
        F.when(F.col(OP_COLUMN) != "d", row).alias("row"),
        F.col(UNCHANGED_COLUMN).alias("open"),
        F.from_json(OLD_KEY_COLUMN, kind).alias("old_key"),
        F.col(ORDER_COLUMN).alias("order"),
        F.col(TIME_COLUMN).alias("source_time"),
    )


def touched_keys(everything: DataFrame, new: DataFrame) -> DataFrame:
    """Keys of some events, and those that their rows have come from or gone to.

    :param everything: all events, as :func:`changes_of` tells them.
    :param new: the events.
    :return: the column ``touched``.
    """
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
