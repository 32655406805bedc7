"""Rows below a table's floor are left out: they have expired, and an old event does not bring them back.

They are treated as rows outside the filter of ``clean`` are, of which the floor becomes a part: an update that takes a
row below the floor deletes it, one that takes a row above it is applied, and so are deletes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakecdc.iceberg.fence import KnownFloor
from lakecdc.metadata.floor import TIMES, read_floor, text_of
from lakecdc.metadata.names import ERASED, EXPIRED_BELOW
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.batch import Batch

# a change while its row's columns stand at the top
_CHANGE = "_lakecdc_change"
_SPARK = {"date": "date", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}


@dataclass(frozen=True)
class BelowFloor:
    """What a batch is held against.

    :param text: the table's property as it was then.
    :param column: the column's present name; None if the table has it no more.
    :param kind: its Iceberg type.
    :param literal: the floor as a text of that type.
    :param _seen: what counts the rows that are left out, once they are written.
    :param _counted: those that have been counted.
    """

    text: str
    column: str | None = None
    kind: str = ""
    literal: str = ""
    _seen: list[Observation] = field(default_factory=list)
    _counted: list[int] = field(default_factory=list)

    def condition(self, columns: Iterable[str]) -> str | None:
        """Return SQL that is true for rows below the floor and false for all others; None if there can be none.

        :param columns: that the rows have.
        """
        name = next((c for c in columns if self.column and c.lower() == self.column.lower()), None)
        if name is None:
            return None
        kind = _SPARK[self.kind]
        return f"coalesce(try_cast({quoted_column(name)} AS {kind}) < CAST('{self.literal}' AS {kind}), false)"

    def observe(self, rows: DataFrame, below: Column) -> DataFrame:
        """Rows that are counted when they are written, which has to be once."""
        self._seen.append(Observation())
        return rows.observe(self._seen[-1], F.count_if(below).alias("rows"))

    def count(self, rows: DataFrame) -> None:
        """Count rows that are left out."""
        self._counted.append(rows.count())

    def rows(self) -> int:
        """How many rows were left out; known once the batch is committed."""
        return sum(self._counted) + sum(int(seen.get["rows"]) for seen in self._seen)


def held_against(batch: Batch, table: IcebergTable | None) -> Batch:
    """Return the batch with the floor of the table that it goes into.

    :param table: None if there is none yet.
    :raises InputError: the table's property is no floor.
    """
    if table is None:
        return batch
    floor = table_floor(table) or batch.commit.floor
    return replace(batch, commit=replace(batch.commit, erasure=table.properties.get(ERASED), floor=floor))


def table_floor(table: IcebergTable) -> BelowFloor | None:
    """Return what rows that go into a table are held against; None if nothing of it has expired.

    :raises InputError: the table's property is no floor.
    """
    text = table.properties.get(EXPIRED_BELOW)
    if text is None:
        return None
    floor, found = read_floor({EXPIRED_BELOW: text}, table.name), None
    if floor is not None:
        found = next((f for f in table.fields if f.id == floor.field_id and f.type in TIMES), None)
    if floor is None or found is None:
        return BelowFloor(text)
    return BelowFloor(text, found.name, found.type, text_of(floor.below, found.type))


def without_expired(batch: Batch, table: IcebergTable) -> Batch:
    """Return the events of a batch for a change log that has a floor of its own, without those of rows below it.

    :param batch: cleaned.
    """
    batch = held_against(replace(batch, commit=replace(batch.commit, floor=None)), table)
    below = batch.commit.floor.condition(c.name for c in batch.columns) if batch.commit.floor else None
    if below is None or batch.rows is None:
        return batch
    events = batch.rows.every_event()
    changes = events.frame
    spread = changes.select(F.struct(*changes.columns).alias(_CHANGE), "row.*")
    kept = spread.where(f"NOT {below}").select(f"{_CHANGE}.*")
    return replace(batch, rows=events.with_frame(kept))


def known_floor(table: IcebergTable, batch: Batch) -> KnownFloor:
    """Return what refuses the commit of a batch if rows of the table have expired or were erased by then."""
    plan = batch.commit
    return KnownFloor(table, {EXPIRED_BELOW: plan.floor.text if plan.floor else None, ERASED: plan.erasure})
