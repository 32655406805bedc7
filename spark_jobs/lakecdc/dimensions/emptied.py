"""Ends of versions without their own event: TRUNCATEs, and full loads that lack the row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.target import OP_COLUMN, ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg.table import IcebergTable, Snapshot, carrier_of, source_position
from lakecdc.local_relation import local_relation
from lakecdc.metadata.positions import Position
from lakecdc.metadata.side_of import read_side_of
from lakecdc.moments.events import emptying

_LOADS = "loads"


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

    def noted(self, position: Position) -> Position:
        loads = {_LOADS: dict(self.loads)} if self.loads else {}
        return replace(position, offsets={**position.offsets, **loads}, truncate_order=self.truncated)

    def by_now(self, table: IcebergTable, history: IcebergTable) -> Emptied:
        """Return the state including everything that happened since."""
        carrier, position = carrier_of(table.ancestors()), source_position(table)
        loads = dict(self.loads)
        following: tuple[str | None, ...] = carrier.ids if carrier else (None,)
        for snapshot in history.ancestors():
            note = read_side_of(snapshot.summary)
            if note is None:
                continue
            # if the table did not move on, it never applied the load
            if note.full_load and note.mark is not None and note.after not in following:
                loads[note.mark] = snapshot.timestamp_ms
            following = (note.after,)
        # only of the last TRUNCATE that emptied the table, which depends on its on_truncate
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
                # a load without rows comes after everything before it
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
