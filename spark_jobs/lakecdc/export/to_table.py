"""Changes appended to a table, in a commit that records the exported snapshot."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.changes import CHANGE_TYPE
from lakecdc.contract.errors import InputError
from lakecdc.export.destination import JOB, Export, position_at
from lakecdc.iceberg.definition import TableDefinition, spark_types
from lakecdc.iceberg.staging import columns_of
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata import names
from lakecdc.metadata.exports import exported_snapshot
from lakecdc.metadata.positions import encode_idle
from lakecdc.moments.table import DerivedTable
from lakecdc.sql import quoted_column

#: name of a change's snapshot in Iceberg's changelog
SNAPSHOT = "_commit_snapshot_id"
#: name of its commit time
TIMESTAMP = "_commit_timestamp"
_OWN = ((CHANGE_TYPE, "string"), (SNAPSHOT, "bigint"), (TIMESTAMP, "timestamp"))


class TableDestination(DerivedTable):
    """A change table in the catalog of its source; any other table is refused."""

    def __init__(self, source: IcebergTable, name: str) -> None:
        super().__init__(source, name)
        if self._table is not None and CHANGE_TYPE not in self._table.column_names:
            raise InputError(
                f"The table {name} is not a change table: column {CHANGE_TYPE} is missing.",
                table=source.name,
                hint="Name a change table, or a table that does not exist: the job creates it.",
            )
        if taken := {name for name, _ in _OWN} & set(source.column_names):
            raise InputError(f"The table has a column {min(taken)!r} of its own.", table=source.name, hint="Rename it.")

    def exported(self) -> int | None:
        """Return the id of the last exported snapshot, if the table is fed from this one."""
        return exported_snapshot(self._position, self._source.name, self._source.uuid, self.name)

    def write(self, export: Export) -> dict[str, Any]:
        """Append changes, or set a property if there are none; return numbers for the report."""
        position = position_at(self._source, export.until)
        if self._table is not None and self._carrier is not None and not export.rows:
            idle = encode_idle(self._carrier.snapshot_id, position)
            self._table.update_properties({names.IDLE_POSITION: idle})
            return {"rows_written": 0}
        columns = [(name, kind, False) for name, kind in (*spark_types(self._source).items(), *_OWN)]
        version = {"format-version": str(self._source.format_version)}
        table = self.prepared(TableDefinition(columns, properties=version))
        snapshot, numbers = self.publish(table, _rows(table, export), position, {names.JOB: JOB})
        return {**numbers, "exported_as": str(snapshot.id)}


def _rows(table: IcebergTable, export: Export) -> DataFrame:
    own = {SNAPSHOT: F.lit(export.until.id), TIMESTAMP: F.timestamp_millis(F.lit(export.until.timestamp_ms))}
    there = {name: F.col(quoted_column(name)) for name in export.changes.columns}
    return export.changes.select(*columns_of(table, there | own))
