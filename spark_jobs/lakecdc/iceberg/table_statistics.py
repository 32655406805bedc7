"""Statistics files of a table, which Iceberg's own procedures make: distinct values of columns, and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.iceberg.jvm import listed, mapping
from lakecdc.sql import literal, quoted

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable

# Iceberg's name of the sketches, and of what its writer adds to them
_SKETCH, _DISTINCT = "apache-datasketches-theta-v1", "ndv"


@dataclass(frozen=True)
class ColumnStatistics:
    """What statistics of one snapshot say.

    :param distinct: about how many values each column has, by name.
    """

    snapshot_id: int
    distinct: dict[str, int]


def column_statistics(table: IcebergTable) -> dict[int, ColumnStatistics]:
    """The statistics of columns, by snapshot."""
    schema, found = table.java.schema(), {}
    for file in listed(table.java.statisticsFiles()):
        distinct = {}
        for blob in listed(file.blobMetadata()):
            names = [schema.findColumnName(i) for i in listed(blob.fields())]
            if blob.type() == _SKETCH and len(names) == 1 and names[0] is not None:
                distinct[str(names[0])] = int(mapping(blob.properties()).get(_DISTINCT, 0))
        found[int(file.snapshotId())] = ColumnStatistics(int(file.snapshotId()), distinct)
    return found


def partition_statistics(table: IcebergTable) -> set[int]:
    """Snapshots that have statistics of partitions."""
    return {int(file.snapshotId()) for file in listed(table.java.partitionStatisticsFiles())}


def compute_columns(table: IcebergTable, snapshot_id: int, columns: Sequence[str]) -> None:
    """Make and register the statistics of columns for a snapshot, which reads these columns."""
    listing = ", ".join(literal(column) for column in columns)
    _call(table, f"compute_table_stats({_target(table, snapshot_id)}, columns => array({listing}))")


def compute_partitions(table: IcebergTable, snapshot_id: int) -> None:
    """Make and register the statistics of partitions for a snapshot, from the manifests that earlier ones lack."""
    _call(table, f"compute_partition_stats({_target(table, snapshot_id)})")


def _target(table: IcebergTable, snapshot_id: int) -> str:
    return f"table => {literal(quoted(table.name))}, snapshot_id => {snapshot_id}"


def _call(table: IcebergTable, procedure: str) -> None:
    table.spark.sql(f"CALL {quoted(table.catalog)}.system.{procedure}").collect()
    table.refresh()
