"""A dimension table: which events it includes, and how it is updated."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.dimensions.emptied import Emptied
from lakecdc.dimensions.versions import IS_CURRENT, OWN
from lakecdc.export.destination import position_at
from lakecdc.iceberg import scratch
from lakecdc.iceberg.definition import TableDefinition, source_types
from lakecdc.iceberg.staging import columns_of
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.ingest.api import summary
from lakecdc.metadata import names
from lakecdc.metadata.exports import exported_snapshot
from lakecdc.metadata.positions import Position
from lakecdc.moments.table import DerivedTable
from lakecdc.runtime.failpoints import reach
from lakecdc.sql import quoted_column, temporary_view

JOB = "scd2"


class Dimension(DerivedTable):
    """The table with the versions of a table's rows; it may not exist yet.

    :raises InputError: the table is not a dimension.
    :ivar emptied: what has emptied the table, as far as the dimension knows.
    """

    def __init__(self, table: IcebergTable, name: str) -> None:
        super().__init__(table, name)
        self._columns = source_types(table)
        if taken := set(OWN) & set(self._columns):
            raise InputError(f"The table has a column {min(taken)!r} of its own.", table=table.name, hint="Rename it.")
        if self._table is not None and not set(OWN) <= set(self._table.column_names):
            raise InputError(
                f"The table {name} is not a dimension: it needs the columns {', '.join(OWN)}.",
                table=table.name,
                hint="Name a dimension, or a table that does not exist: the job creates it.",
            )
        self.emptied = Emptied.of(self._position)

    def since(self, history: IcebergTable) -> Snapshot | None:
        """Return the history table's snapshot whose events are included, unless it has expired."""
        known = exported_snapshot(self._position, history.name, history.uuid, self.name)
        return history.snapshot(known) if known is not None else None

    def write(
        self, rows: DataFrame, keys: DataFrame | None, history: IcebergTable, until: Snapshot, emptied: Emptied
    ) -> dict[str, Any]:
        """Replace the versions of some keys, and return numbers for the report.

        :param rows: of :func:`lakecdc.dimensions.versions.versions`.
        :param keys: key columns of every key to replace, including keys without versions; None replaces all versions.
        :param until: the history table's snapshot with these events.
        :param emptied: what ended versions without an event.
        :raises ConflictError: another writer committed meanwhile; nothing is published.
        """
        columns, key = [*self._columns.items(), *OWN.items()], self._source.identifier_columns
        settings = {"format-version": str(self._source.format_version), "write.delete.mode": "merge-on-read"}
        # the time is not part of the identifier: some sources do not provide it
        required = [(name, kind, name in key) for name, kind in columns]
        table = self.prepared(TableDefinition(required, properties=settings))
        position = emptied.noted(position_at(history, until))
        there = {name: F.col("row")[name] for name in self._columns} | {name: F.col(name) for name in OWN}
        flat = rows.select(*columns_of(table, there)).localCheckpoint()
        base = table.head()
        if base is None:
            snapshot, _ = self.publish(table, flat, position, {names.JOB: JOB})
        else:
            snapshot = self._replace(table, base, flat, position, keys)
        counts = flat.agg(F.count(F.lit(1)), F.count_if(IS_CURRENT)).first()
        assert counts is not None
        return {"dimension": self.name, "snapshot": str(snapshot.id), "versions": counts[0], "current": counts[1]}

    def _replace(
        self, table: IcebergTable, base: Snapshot, flat: DataFrame, position: Position, keys: DataFrame | None
    ) -> Snapshot:
        with scratch.branch(table, base) as branch, temporary_view(flat) as given:
            target = scratch.sql_name(table, branch)
            _delete(table.spark, target, keys)
            table.spark.sql(f"INSERT INTO {target} SELECT * FROM {given}")
            reach("before_commit")
            note = {**summary(position), names.JOB: JOB}
            try:
                return scratch.publish(table, branch, base, self.fence(), note)
            except scratch.HeadMovedError as error:
                raise ConflictError(
                    f"Another writer committed to the dimension {self.name} meanwhile.",
                    table=self._source.name,
                    hint="Nothing was published; run again.",
                ) from error


def _delete(spark: SparkSession, target: str, keys: DataFrame | None) -> None:
    if keys is None:
        spark.sql(f"DELETE FROM {target}")
        return
    with temporary_view(keys.distinct().localCheckpoint()) as given:
        same = " AND ".join(f"t.{name} = s.{name}" for name in map(quoted_column, keys.columns))
        spark.sql(f"DELETE FROM {target} t WHERE EXISTS (SELECT 1 FROM {given} s WHERE {same})")
