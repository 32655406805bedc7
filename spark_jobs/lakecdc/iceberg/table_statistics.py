"""Statistics files of a table, which Iceberg's own actions make: distinct values of columns, and partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.iceberg.commit import told_as_conflict
from lakecdc.iceberg.jvm import java_array, listed, mapping, spark_actions

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
    """Make and register the statistics of columns for a snapshot, which reads these columns.

    :raises ConflictError: other writers were faster at every attempt that the table allows.
    """
    names = java_array(table.spark, "java.lang.String", columns)
    action = spark_actions(table.spark).computeTableStats(table.java).columns(names).snapshot(snapshot_id)
    with _registered(table):
        action.execute()


def compute_partitions(table: IcebergTable, snapshot_id: int) -> None:
    """Make and register the statistics of partitions for a snapshot, from the manifests that earlier ones lack.

    Iceberg makes one attempt to register them, with the metadata that the table had before they were made
    (``SetPartitionStatistics`` of 1.12); the commit of a transaction makes as many as any other commit.

    :raises ConflictError: other writers were faster at every attempt that the table allows.
    """
    transaction = table.java.newTransaction()
    spark_actions(table.spark).computePartitionStats(transaction.table()).snapshot(snapshot_id).execute()
    with _registered(table):
        transaction.commitTransaction()


def remove_statistics(table: IcebergTable, is_meant: Callable[[str], bool]) -> list[str]:
    """Take files of statistics out of the metadata; the files stay.

    :param is_meant: tells by a file's location whether it goes.
    :return: the locations of those that went.
    :raises ConflictError: other writers were faster at every attempt that the table allows.
    """
    columns, partitions = (
        [file for file in listed(files) if is_meant(str(file.path()))]
        for files in (table.java.statisticsFiles(), table.java.partitionStatisticsFiles())
    )
    transaction = table.java.newTransaction()
    # one operation at a time
    of_columns = transaction.updateStatistics()
    for file in columns:
        of_columns.removeStatistics(file.snapshotId())
    of_columns.commit()
    of_partitions = transaction.updatePartitionStatistics()
    for file in partitions:
        of_partitions.removePartitionStatistics(file.snapshotId())
    of_partitions.commit()
    with _registered(table, "The statistics were not removed"):
        transaction.commitTransaction()
    return [str(file.path()) for file in (*columns, *partitions)]


@contextmanager
def _registered(table: IcebergTable, failure: str = "The statistics were not registered") -> Iterator[None]:
    with told_as_conflict(table, failure, "The table is as it was; run again."):
        yield
    table.refresh()
