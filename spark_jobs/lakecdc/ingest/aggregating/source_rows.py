"""Read the rows of a source from the events in its history table."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import OLD_KEY_COLUMN, UNCHANGED_COLUMN
from lakecdc.iceberg.table import IcebergTable
from lakecdc.ingest.change import Column
from lakecdc.ingest.fold import is_open, without_void
from lakecdc.ingest.lookup import read_keys
from lakecdc.ingest.past_events import EVENT_COLUMNS, changes_of, whole_rows
from lakecdc.sql import quoted_column


class UnknownValuesError(InputError):
    """The available events leave out values of rows."""


@dataclass(frozen=True)
class SourceRows:
    """Read the current rows of a source.

    :param columns: columns of the rows, including the key.
    :param key: columns that identify a row.
    :param truncated: order key of the last TRUNCATE, below which events are void; None if there was none.
    """

    history: IcebergTable
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    truncated: str | None

    def events(self, rows: DataFrame) -> DataFrame:
        """Convert rows of the history table to a change frame of the columns."""
        names = F.array(*[F.lit(column.name) for column in self.columns])
        changes = changes_of(rows, self.columns, self.key)
        changes = changes.withColumn("open", F.array_intersect("open", names))
        return without_void(changes, self.truncated)

    def keys_with(self, values: DataFrame, snapshot_id: int) -> DataFrame:
        """Return the distinct keys of the events with one of the values.

        :param values: distinct; its columns are some of the history table's.
        """
        return self._with(values, snapshot_id).select(*map(quoted_column, self.key)).distinct()

    def events_of(self, keys: DataFrame, snapshot_id: int) -> DataFrame:
        """Return all events of some distinct keys."""
        return self.events(self._with(keys, snapshot_id))

    def live(self, events: DataFrame) -> DataFrame:
        """Return the rows after all events of their keys: ``row, order, source_time``.

        :raises UnknownValuesError: no event of a row has one of its values.
        """
        leave_out = not events.where(is_open()).isEmpty()
        whole = whole_rows(events) if leave_out else events.withColumn("unknown", F.lit(0))
        last = F.max_by(F.struct("op", "row", "order", "source_time", "unknown"), "order").alias("last")
        # Spark sorts by columns several times faster than by a struct
        key = [F.col("key")[name].alias(f"k{place}") for place, name in enumerate(self.key)]
        rows = whole.groupBy(*key).agg(last).select("last.*").where("op != 'd'")
        if leave_out and (count := rows.where("unknown > 0").count()):
            names = ", ".join(column.name for column in self.columns)
            raise UnknownValuesError(
                f"The last events of {count} rows of the source leave out values of {names}, and no event in the "
                f"history table {self.history.name} has them.",
                hint="Set REPLICA IDENTITY FULL or its equivalent at the source, and change these rows there.",
            )
        return rows.select("row", "order", "source_time")

    def moves_leave_out_values(self, snapshot_id: int) -> bool:
        """Check whether key updates left values out.

        Such a row cannot be found by values of its event, and it changes with late events of its old key.
        """
        names = F.array(*[F.lit(column.name) for column in self.columns])
        moves = self.history.read(snapshot_id, (UNCHANGED_COLUMN,), f"{OLD_KEY_COLUMN} IS NOT NULL")
        return not moves.where(F.arrays_overlap(F.col(UNCHANGED_COLUMN), names)).isEmpty()

    def _with(self, values: DataFrame, snapshot_id: int) -> DataFrame:
        columns = [*(column.name for column in self.columns), *EVENT_COLUMNS]
        return read_keys(self.history, values, values.columns, snapshot_id, columns)
