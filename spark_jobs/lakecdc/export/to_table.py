"""Changes appended to a table, in a commit that records the exported snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakecdc.changes import CHANGE_TYPE
from lakecdc.contract.errors import InputError
from lakecdc.export.destination import JOB, position_at
from lakecdc.iceberg.definition import TableDefinition, create_table, evolve, spark_types
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import columns_of
from lakecdc.iceberg.table import carrier_of, open_if_there
from lakecdc.ingest.api import Commit, Staged, publish
from lakecdc.metadata import names
from lakecdc.metadata.exports import exported_snapshot
from lakecdc.metadata.positions import current_position, encode_idle
from lakecdc.sql import quoted_column
from lakecdc.writer.frame import stage_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.export.destination import Export
    from lakecdc.iceberg.table import IcebergTable

#: name of a change's snapshot in Iceberg's changelog
SNAPSHOT = "_commit_snapshot_id"
#: name of its commit time
TIMESTAMP = "_commit_timestamp"
_OWN = ((CHANGE_TYPE, "string"), (SNAPSHOT, "bigint"), (TIMESTAMP, "timestamp"))


class TableDestination:
    """A change table in the catalog of its source.

    :raises InputError: the table is not a change table.
    """

    def __init__(self, source: IcebergTable, name: str) -> None:
        self._source, self._name = source, name
        self._table = open_if_there(source.spark, source.catalog, name)
        if self._table is not None and CHANGE_TYPE not in self._table.column_names:
            raise InputError(
                f"The table {name} is not a change table: column {CHANGE_TYPE} is missing.",
                table=source.name,
                hint="Name a change table, or a table that does not exist: the job creates it.",
            )
        if taken := {name for name, _ in _OWN} & set(source.column_names):
            raise InputError(f"The table has a column {min(taken)!r} of its own.", table=source.name, hint="Rename it.")
        self._carrier = carrier_of(self._table.ancestors()) if self._table is not None else None

    def exported(self) -> int | None:
        position = current_position(self._carrier, self._table.properties) if self._table is not None else None
        return exported_snapshot(position, self._source.name, self._source.uuid, self._name)

    def write(self, export: Export) -> dict[str, Any]:
        """Append changes, or set a property if there are none."""
        position = position_at(self._source, export.until)
        if self._table is not None and self._carrier is not None and not export.rows:
            idle = encode_idle(self._carrier.snapshot_id, position)
            self._table.update_properties({names.IDLE_POSITION: idle})
            return {"rows_written": 0}
        table = self._prepared()

        def stage(staged: Staged) -> None:
            staged.data_files += stage_frame(table, _rows(table, export))

        fence = PositionFence(self._carrier.text if self._carrier else None)
        applied = publish(table, stage, Commit(position, fence, note={names.JOB: JOB}))
        return {
            "rows_written": applied.rows,
            "bytes_written": applied.bytes,
            "files_written": applied.data_files,
            "exported_as": str(applied.snapshot.id),
        }

    def _prepared(self) -> IcebergTable:
        """Return the table with the source's current columns."""
        source = self._source
        columns = [*spark_types(source).items(), *_OWN]
        if self._table is not None:
            evolve(self._table, columns)
            return self._table
        version = {"format-version": str(source.format_version)}
        optional = [(name, kind, False) for name, kind in columns]
        return create_table(source.spark, source.catalog, self._name, TableDefinition(optional, properties=version))


def _rows(table: IcebergTable, export: Export) -> DataFrame:
    from pyspark.sql import functions as F

    own = {
        SNAPSHOT: F.lit(export.until.id),
        TIMESTAMP: F.timestamp_millis(F.lit(export.until.timestamp_ms)),
    }
    there = {name: F.col(quoted_column(name)) for name in export.changes.columns}
    return export.changes.select(*columns_of(table, there | own))
