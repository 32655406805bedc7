"""The changes exported by one run, and their form as Debezium envelopes in JSON."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lakecdc.changes import CHANGE_TYPE
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg.table import IcebergTable, Snapshot, carrier_of
from lakecdc.metadata.exports import position_of
from lakecdc.metadata.positions import Position
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
    """Return the position of a table derived from another one up to a snapshot."""
    carrier = carrier_of(source.ancestors_of(until))
    through = carrier.position.read_through if carrier else None
    return position_of(source.name, source.uuid, until.id, through)


def envelopes(export: Export) -> DataFrame:
    """Build one envelope per change: ``c``, ``u``, ``d``, or ``r`` where all rows are exported; steps keep order."""
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
    """Mark each row as the one before or after, with its key."""
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
