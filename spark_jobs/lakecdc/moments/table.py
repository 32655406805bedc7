"""A moment as a separate table, which each run rewrites in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.definition import TableDefinition, create_table, current_spec_id, evolve, partitioning, spark_types
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import columns_of
from lakecdc.iceberg.table import carrier_of, facts_of, open_if_there
from lakecdc.ingest.api import Commit, Staged, clustered, publish
from lakecdc.metadata import names
from lakecdc.metadata.exports import SOURCE, position_of
from lakecdc.moments.restored import JOB
from lakecdc.sql import quoted_column
from lakecdc.writer.frame import stage_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable, Snapshot
    from lakecdc.moments.stretch import Stretch


class MomentTable:
    """A table that contains a moment of another one; it may not exist yet.

    :raises InputError: a table with this name has other content.
    """

    def __init__(self, source: IcebergTable, name: str) -> None:
        self._source, self.name = source, name
        self._table = open_if_there(source.spark, source.catalog, name)
        self._carrier = carrier_of(self._table.ancestors()) if self._table is not None else None
        written = _last_written(self._table) if self._table is not None else None
        self.note = written.summary.get(names.MOMENT) if written else None
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
        """Replace the rows with those of a moment, described by a note in the summary; return numbers for the report.

        :raises ConflictError: another run committed first.
        """
        table = self._prepared()
        there = {name: F.col(quoted_column(name)) for name in rows.columns}
        key, spec_id = self._source.identifier_columns, current_spec_id(table)
        ordered = clustered(table, rows.select(*columns_of(table, there)), key, spec_id, 0, spread=True)

        def stage(staged: Staged) -> None:
            staged.data_files += stage_frame(table, ordered)

        applied = publish(
            table,
            stage,
            Commit(
                position_of(self._source.name, self._source.uuid, stretch.base.id, stretch.moment.isoformat()),
                PositionFence(self._carrier.text if self._carrier else None),
                replaces=self._carrier is not None,
                note={names.JOB: JOB, names.MOMENT: note},
            ),
        )
        return {
            "snapshot": str(applied.snapshot.id),
            "rows_written": applied.rows,
            "bytes_written": applied.bytes,
            "files_written": applied.data_files,
        }

    def _prepared(self) -> IcebergTable:
        """Return the table with the source's current columns."""
        source, types = self._source, spark_types(self._source)
        if self._table is not None:
            evolve(self._table, [*types.items()])
            return self._table
        key = source.identifier_columns
        return create_table(
            source.spark,
            source.catalog,
            self.name,
            TableDefinition(
                [(name, kind, name in key) for name, kind in types.items()],
                partition_by=partitioning(source),
                properties={"format-version": str(source.format_version)},
                identifier=key,
            ),
        )


def _last_written(table: IcebergTable) -> Snapshot | None:
    """Return the newest snapshot that is not maintenance."""
    # a moment counts as maintenance on the branch that shows it
    changes = (each for each in table.ancestors() if names.MOMENT in each.summary or not facts_of(each).is_maintenance)
    return next(changes, None)
