"""Export the changes of one run as Debezium envelopes in JSON, or as rows appended to a table.

The commit to a table records the exported snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lakecdc.changes import CHANGE_TYPE
from lakecdc.contract.errors import InputError
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg.definition import TableDefinition, spark_types
from lakecdc.iceberg.staging import columns_of
from lakecdc.iceberg.table import IcebergTable, Snapshot, carrier_of
from lakecdc.metadata import names
from lakecdc.metadata.exports import exported_snapshot, position_of
from lakecdc.metadata.positions import Position, encode_idle
from lakecdc.moments.table import DerivedTable
from lakecdc.sql import EXACT_JSON, quoted_column

JOB = "export_changes"
_OPTIONS = {**EXACT_JSON, "ignoreNullFields": "false"}
_OLD = "delete", "update_before"


@dataclass(frozen=True)
class Export:
    """Changes of a table between two snapshots.

    :param since: the last exported snapshot; None exports all rows as inserts.
    :param changes: of :func:`lakecdc.changes.between` or :func:`lakecdc.export.steps.steps`.
    :param counts: number of rows by kind of change.
    :param is_steps: each row is a step with the order key and the time of its event.
    """

    source: IcebergTable
    since: Snapshot | None
    until: Snapshot
    changes: DataFrame
    counts: dict[str, int]
    is_steps: bool = False

    @property
    def rows(self) -> int:
        return sum(self.counts.values())


def position_at(source: IcebergTable, until: Snapshot) -> Position:
    """Return the position of a table that is derived from a source table up to a snapshot."""
    carrier = carrier_of(source.ancestors_of(until))
    through = carrier.position.table_through if carrier else None
    return position_of(source.name, source.uuid, until.id, through)


def envelopes(export: Export) -> DataFrame:
    """Build one envelope per change: ``c``, ``u``, ``d``, or ``r`` in a full export; steps keep their order."""
    before, after = F.col("before"), F.col("after")
    added = "r" if export.since is None else "c"
    op = F.when(before.isNull(), added).when(after.isNull(), "d").otherwise("u")
    images = _steps(export) if export.is_steps else _images(export)
    payloads = images.select(
        before, after, _source(export).alias("source"), op.alias("op"), F.lit(export.until.timestamp_ms).alias("ts_ms")
    )
    return payloads.select(F.to_json(F.struct("*"), _OPTIONS).alias("value"))


def _steps(export: Export) -> DataFrame:
    # rows removed without an event have no order and come last
    rows = _rows(export)
    of_event = [*(name for name in rows.columns if name.startswith("key")), "order"]
    images = [F.first(image, ignorenulls=True).alias(image) for image in ("before", "after")]
    return rows.groupBy(*of_event).agg(*images, F.first("time").alias("time")).orderBy(F.asc_nulls_last("order"))


def _images(export: Export) -> DataFrame:
    rows, key = _rows(export), export.source.identifier_columns
    if not key or export.since is None:
        return rows
    # rows that share a key are paired in any order
    of_key = [f"key{place}" for place in range(len(key))]
    number = F.row_number().over(Window.partitionBy(*of_key, "is_old").orderBy(F.lit(0)))
    pairs = rows.withColumn("number", number).groupBy(*of_key, "number")
    return pairs.agg(*(F.first(image, ignorenulls=True).alias(image) for image in ("before", "after")))


def _rows(export: Export) -> DataFrame:
    """Return each change as a row ``before`` or ``after``, with its key."""
    changes, source = export.changes, export.source
    columns, key = map(quoted_column, source.column_names), list(map(quoted_column, source.identifier_columns))
    is_old = F.col(CHANGE_TYPE).isin(*_OLD)
    row = F.struct(*columns)
    event = [F.col(ORDER_COLUMN).alias("order"), F.col(TIME_COLUMN).alias("time")] if export.is_steps else []
    return changes.select(
        *(F.col(column).alias(f"key{place}") for place, column in enumerate(key)),
        F.when(is_old, row).alias("before"),
        F.when(~is_old, row).alias("after"),
        is_old.alias("is_old"),
        *event,
    )


def _source(export: Export) -> Column:
    namespace, _, name = export.source.name.rpartition(".")
    names = {
        "connector": "lakecdc",
        "name": export.source.catalog,
        "snapshot": "false" if export.since else "true",
        "schema": namespace,
        "table": name,
        # JavaScript cannot hold 64 bits
        "snapshot_id": str(export.until.id),
    }
    values = [F.lit(value).alias(field) for field, value in names.items()]
    written = F.lit(export.until.timestamp_ms)
    moment = F.coalesce(F.unix_millis("time"), written) if export.is_steps else written
    return F.struct(*values, moment.alias("ts_ms"))


#: name of a change's snapshot in Iceberg's changelog
SNAPSHOT = "_commit_snapshot_id"
#: name of its commit time
TIMESTAMP = "_commit_timestamp"
_OWN = ((CHANGE_TYPE, "string"), (SNAPSHOT, "bigint"), (TIMESTAMP, "timestamp"))


class TableDestination(DerivedTable):
    """A change table in the catalog of its source; other tables are refused."""

    def __init__(self, source: IcebergTable, name: str) -> None:
        super().__init__(source, name)
        if self._table is not None and CHANGE_TYPE not in self._table.column_names:
            raise InputError(
                f"The table {name} is not a change table: column {CHANGE_TYPE} is missing.",
                table=source.name,
                hint="Name a change table, or a table that does not exist: the job creates it.",
            )
        if reserved := {name for name, _ in _OWN} & set(source.column_names):
            raise InputError(f"The column name {min(reserved)!r} is reserved.", table=source.name, hint="Rename it.")

    def exported(self) -> int | None:
        """Return the id of the last exported snapshot, if the table is fed from this source."""
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
        own = {SNAPSHOT: F.lit(export.until.id), TIMESTAMP: F.timestamp_millis(F.lit(export.until.timestamp_ms))}
        there = {name: F.col(quoted_column(name)) for name in export.changes.columns}
        rows = export.changes.select(*columns_of(table, there | own))
        snapshot, numbers = self.publish(table, rows, position, {names.JOB: JOB})
        return {**numbers, "exported_as": str(snapshot.id)}
