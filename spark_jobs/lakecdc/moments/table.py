"""Write a moment to a separate table, which each run rewrites in one commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.definition import TableDefinition, create_table, current_spec_id, evolve, partitioning, spark_types
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import columns_of
from lakecdc.iceberg.table import IcebergTable, Snapshot, carrier_of, open_if_there
from lakecdc.ingest.api import Commit, Staged, cluster_rows, publish
from lakecdc.metadata import names
from lakecdc.metadata.exports import SOURCE, position_of
from lakecdc.metadata.positions import Carrier, Position, current_position
from lakecdc.moments.stretch import Stretch
from lakecdc.sql import quoted_column
from lakecdc.writer.frame import stage_frame

JOB = "restore_moment"


class DerivedTable:
    """A table that a job derives from another table of its catalog; it may not exist yet."""

    def __init__(self, source: IcebergTable, name: str) -> None:
        self._source, self.name = source, name
        self._table = open_if_there(source.spark, source.catalog, name)
        self._carrier: Carrier | None = None
        self._position: Position | None = None
        if self._table is not None:
            self._carrier = carrier_of(self._table.ancestors())
            self._position = current_position(self._carrier, self._table.properties)

    def prepared(self, definition: TableDefinition) -> IcebergTable:
        """Create the table or add missing columns, and return it."""
        if self._table is None:
            return create_table(self._source.spark, self._source.catalog, self.name, definition)
        evolve(self._table, [(name, kind) for name, kind, _ in definition.columns])
        return self._table.refresh()

    def fence(self) -> PositionFence:
        return PositionFence(self._carrier.text if self._carrier else None)

    def publish(
        self, table: IcebergTable, rows: DataFrame, position: Position, note: Mapping[str, str], replaces: bool = False
    ) -> tuple[Snapshot, dict[str, int]]:
        """Append rows, or replace all, in one commit; return its snapshot and numbers for the report."""

        def stage(staged: Staged) -> None:
            staged.data_files += stage_frame(table, rows)

        applied = publish(table, stage, Commit(position, self.fence(), replaces=replaces, note=note))
        numbers = {"rows_written": applied.rows, "bytes_written": applied.bytes, "files_written": applied.data_files}
        return applied.snapshot, numbers


class MomentTable(DerivedTable):
    """A table that contains a moment of another table; a table with other content is refused."""

    def __init__(self, source: IcebergTable, name: str) -> None:
        super().__init__(source, name)
        # on a branch, restoring a moment counts as maintenance
        ancestors = self._table.ancestors() if self._table is not None else ()
        written = (s for s in ancestors if names.MOMENT in s.summary or not s.is_maintenance)
        self.note = next((each.summary.get(names.MOMENT) for each in written), None)
        if self._table is not None and not self._is_ours(self._table):
            raise InputError(
                f"The table {name} already exists and does not contain a moment of this table.",
                table=source.name,
                hint="Give options.into another name, or drop that table.",
            )

    def _is_ours(self, table: IcebergTable) -> bool:
        if table.head() is None:
            return table.column_names == self._source.column_names
        position = self._carrier.position if self._carrier else None
        fed_by = (position.source, position.identity) if position else None
        return self.note is not None and fed_by == (SOURCE, self._source.uuid)

    def write(self, rows: DataFrame, stretch: Stretch, note: str) -> dict[str, Any]:
        """Replace all rows by the rows of a moment, described by a note; return numbers for the report."""
        source, key = self._source, self._source.identifier_columns
        definition = TableDefinition(
            [(name, kind, name in key) for name, kind in spark_types(source).items()],
            partition_by=partitioning(source),
            properties={"format-version": str(source.format_version)},
            identifier=key,
        )
        table = self.prepared(definition)
        there = {name: F.col(quoted_column(name)) for name in rows.columns}
        selected = rows.select(*columns_of(table, there))
        ordered = cluster_rows(table, selected, key, current_spec_id(table), 0, spread=True)
        position = position_of(source.name, source.uuid, stretch.base.id, stretch.moment.isoformat())
        entries = {names.JOB: JOB, names.MOMENT: note}
        snapshot, numbers = self.publish(table, ordered, position, entries, replaces=self._carrier is not None)
        return {"snapshot": str(snapshot.id), **numbers}
