"""Leave out rows below a table's floor: they have expired, and old events must not bring them back.

The floor becomes part of the filter of ``clean``: an update that moves a row below it deletes the row; updates that
move a row above it are applied, and so are deletes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from lakecdc.iceberg.fence import KnownFloor
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.batch import Batch
from lakecdc.metadata.floor import TIMES, read_floor, text_of
from lakecdc.metadata.names import AGGREGATED, ERASED, EXPIRED_BELOW
from lakecdc.sql import quoted_column

# a change while its row's columns are top-level
_CHANGE = "_lakecdc_change"
_SPARK = {"date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}


@dataclass(frozen=True)
class BelowFloor:
    """A table's floor, and the number of rows left out.

    :param text: the table's property.
    :param column: the column's current name; None if the table has dropped it.
    :param kind: its Iceberg type.
    :param literal: the floor as text of that type.
    """

    text: str
    column: str | None = None
    kind: str = ""
    literal: str = ""
    _seen: list[Observation] = field(default_factory=list)
    _counted: list[int] = field(default_factory=list)

    def condition(self, columns: Iterable[str]) -> str | None:
        """Return SQL that is true for rows below the floor and false for all others; None if there can be none."""
        name = next((c for c in columns if self.column and c.lower() == self.column.lower()), None)
        if name is None:
            return None
        kind = _SPARK[self.kind]
        return f"coalesce(try_cast({quoted_column(name)} AS {kind}) < CAST('{self.literal}' AS {kind}), false)"

    def observe(self, rows: DataFrame, below: Column) -> DataFrame:
        """Count rows below the floor while the frame is written, which must happen once."""
        self._seen.append(Observation())
        return rows.observe(self._seen[-1], F.count_if(below).alias("rows"))

    def count(self, rows: DataFrame) -> None:
        """Count rows below the floor."""
        self._counted.append(rows.count())

    def rows(self) -> int:
        """Return the number of rows left out, after the commit."""
        return sum(self._counted) + sum(int(seen.get["rows"]) for seen in self._seen)


def held_against(batch: Batch, table: IcebergTable | None) -> Batch:
    """Return the batch with the floor of its table, if it exists; see :func:`table_floor`."""
    if table is None:
        return batch
    floor = table_floor(table) or batch.commit.floor
    return replace(batch, commit=replace(batch.commit, erasure=table.properties.get(ERASED), floor=floor))


def table_floor(table: IcebergTable) -> BelowFloor | None:
    """Return the floor for rows of a table; None if no rows have expired.

    :raises InputError: the table's property is not a floor.
    """
    text = table.properties.get(EXPIRED_BELOW)
    if text is None:
        return None
    floor, column = read_floor({EXPIRED_BELOW: text}, table.name), None
    if floor is not None:
        column = next((f for f in table.fields if f.id == floor.field_id and f.type in TIMES), None)
    if floor is None or column is None:
        return BelowFloor(text)
    return BelowFloor(text, column.name, column.type, text_of(floor.below, column.type))


def without_expired(batch: Batch, table: IcebergTable) -> Batch:
    """Return the events of a cleaned batch for a change log, without those of rows below the log's own floor."""
    batch = held_against(replace(batch, commit=replace(batch.commit, floor=None)), table)
    below = batch.commit.floor.condition(c.name for c in batch.columns) if batch.commit.floor else None
    if below is None or batch.rows is None:
        return batch
    events = batch.rows.every_event()
    changes = events.frame
    spread = changes.select(F.struct(*changes.columns).alias(_CHANGE), "row.*")
    remaining = spread.where(f"NOT {below}").select(f"{_CHANGE}.*")
    return replace(batch, rows=events.with_frame(remaining))


def known_floor(table: IcebergTable, batch: Batch) -> KnownFloor:
    """Return the floor to check at the commit, which fails if rows expire or are erased, or rules change meanwhile."""
    plan = batch.commit
    rules = {AGGREGATED: plan.rules} if plan.rules else {}
    return KnownFloor(table, {EXPIRED_BELOW: plan.floor.text if plan.floor else None, ERASED: plan.erasure, **rules})
