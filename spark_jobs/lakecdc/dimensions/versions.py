"""Versions of rows, derived from their events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lakecdc.contract.target import OP_COLUMN, ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg.table import IcebergTable, Snapshot, carrier_of
from lakecdc.ingest.api import count_unknown, whole_rows
from lakecdc.local_relation import local_relation
from lakecdc.metadata.positions import Position, current_position, read_side_of
from lakecdc.moments.events import emptying
from lakecdc.sql import exact_value

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
#: columns of a version beside the row, with Spark SQL types
OWN = {VALID_FROM: "timestamp", VALID_TO: "timestamp", IS_CURRENT: "boolean"}
_LOADS = "loads"


def versions(events: DataFrame, emptied: DataFrame) -> tuple[DataFrame, int]:
    """Derive the versions of rows, in source order.

    A version ends with the next event of its key, with a TRUNCATE, or with a full load that lacks its key. Consecutive
    equal versions are one, and a version that began and ended at the same time, as within a transaction, is dropped.

    :param events: a change frame with all events of its keys (see ``lakecdc.ingest.formats.changes``), checkpointed by
        Spark.
    :param emptied: ``order, source_time`` of the TRUNCATEs that emptied the table and of its full loads; ``through`` is
        the order key of a load's last row, null for TRUNCATEs.
    :return: ``key, row, valid_from, valid_to, is_current``, with ``valid_to`` null for current versions; and the number
        of values that the source omitted and no event has, null in the rows.
    """
    keys = events.select("key").distinct()
    closing = keys.crossJoin(F.broadcast(emptied))
    loaded = events.where("op = 'r'").select(F.col("key").alias("loaded"), F.col("order").alias("at"))
    in_load = (F.col("key") == F.col("loaded")) & F.col("at").between(F.col("order"), F.col("through"))
    closing = closing.join(loaded, in_load, "left_anti").drop("through")
    rows = events.select("key", "op", "row", "open", "old_key", "order", "source_time").unionByName(
        closing.withColumn("op", F.lit("d")), allowMissingColumns=True
    )
    whole = whole_rows(rows)
    return _ranges(whole), count_unknown(whole)


def _ranges(rows: DataFrame) -> DataFrame:
    of_key = Window.partitionBy("key").orderBy("order")
    comparable = exact_row(rows)
    before = F.lag(F.struct("op", comparable.alias("row"))).over(of_key)
    same = (F.col("op") != "d") & (before["op"] != "d") & before["row"].eqNullSafe(comparable)
    changed = rows.withColumn("same", F.coalesce(same, F.lit(False))).where("NOT same")
    # a source's clock may go back; the order of its events does not
    sofar = of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    timed = changed.withColumn(VALID_FROM, F.max("source_time").over(sofar))
    following = F.lead(F.struct("op", F.col(VALID_FROM).alias("at"))).over(of_key)
    ended = timed.withColumns({VALID_TO: following["at"], IS_CURRENT: following.isNull()}).where("op <> 'd'")
    # true also if the source provides no times
    valid = ended.where(f"coalesce({VALID_TO} > {VALID_FROM}, true)")
    return valid.select("key", "row", VALID_FROM, VALID_TO, IS_CURRENT)


def exact_row(rows: DataFrame) -> Column:
    """Convert the column ``row`` to a form that Spark compares exactly."""
    return exact_value(F.col("row"), rows.schema["row"].dataType)


@dataclass(frozen=True)
class Emptied:
    """Operations that emptied a table or replaced all its rows.

    :param truncated: order key of the last TRUNCATE; None if there was none.
    :param loads: full loads of all rows after the first one: the history table's highest order key before the load, and
        its commit time in milliseconds since 1970. Stored with the versions, because the history table's snapshots
        expire.
    """

    truncated: str | None = None
    loads: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(position: Position | None) -> Emptied:
        if position is None:
            return Emptied()
        return Emptied(position.truncate_order, position.offsets.get(_LOADS, {}))

    def recorded_in(self, position: Position) -> Position:
        loads = {_LOADS: dict(self.loads)} if self.loads else {}
        return replace(position, offsets={**position.offsets, **loads}, truncate_order=self.truncated)

    def with_later(self, table: IcebergTable, history: IcebergTable) -> Emptied:
        """Return the state including all later operations."""
        carrier = carrier_of(table.ancestors())
        position = current_position(carrier, table.properties)
        loads = dict(self.loads)
        following: tuple[str | None, ...] = carrier.ids if carrier else (None,)
        for snapshot in history.ancestors():
            note = read_side_of(snapshot.summary)
            if note is None:
                continue
            # if the table did not change, it never applied the load
            if note.full_load and note.mark is not None and note.after not in following:
                loads[note.mark] = snapshot.timestamp_ms
            following = (note.after,)
        # only the last TRUNCATE that emptied the table; whether one does depends on on_truncate
        return Emptied(position.truncate_order if position else None, loads)

    def events(self, history: IcebergTable, until: Snapshot) -> DataFrame:
        """Return the ends of versions, see :func:`lakecdc.dimensions.versions.versions`."""
        rows = history.read(until.id)
        ends = emptying(rows, self.truncated).select(
            F.col(ORDER_COLUMN).alias("order"),
            F.col(TIME_COLUMN).alias("source_time"),
            F.lit(None).cast("string").alias("through"),
        )
        if not self.loads:
            return ends
        schema = "order string, source_time timestamp, through string"
        return ends.unionByName(local_relation(history.spark, self._ends_by_load(rows), schema))

    def _ends_by_load(self, rows: DataFrame) -> list[tuple[str, datetime, str]]:
        """Return order key and time of each load's first row, and the order key of its last one."""
        marks = sorted(self.loads)
        bounds = list(zip(marks, [*marks[1:], None], strict=True))
        row = rows.where(F.col(OP_COLUMN) == "r").agg(*[_rows_of_load(low, high) for low, high in bounds]).first()
        assert row is not None
        ends = []
        for mark, load in zip(marks, row, strict=True):
            first, written = load["first"], datetime.fromtimestamp(self.loads[mark] / 1000, UTC)
            if first is None:
                # a load without rows sorts after all earlier events
                ends.append((f"{mark}0", written, mark))
            else:
                ends.append((first["order"], (first["source_time"] or written).astimezone(UTC), load["last"]))
        return ends


def _rows_of_load(low: str, high: str | None) -> Column:
    """Select the first and the last row of a load, between the highest order keys before it and before the next one."""
    order = F.col(ORDER_COLUMN)
    within = (order > low) & (order <= high if high is not None else F.lit(True))
    first = F.struct(order.alias("order"), F.col(TIME_COLUMN).alias("source_time"))
    return F.struct(F.min(F.when(within, first)).alias("first"), F.max(F.when(within, order)).alias("last"))
