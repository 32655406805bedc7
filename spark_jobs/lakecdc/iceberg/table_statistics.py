"""Statistics files of a table, written by Iceberg's actions: distinct values of columns, and partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lakecdc.iceberg.commit_outcome import conflict_errors
from lakecdc.iceberg.jvm import java_array, listed, mapping, spark_actions
from lakecdc.iceberg.table import IcebergTable

# Iceberg's name of the sketches, and of their property
_SKETCH, _DISTINCT = "apache-datasketches-theta-v1", "ndv"


def column_statistics(table: IcebergTable) -> dict[int, dict[str, int]]:
    """Return the estimated number of distinct values of columns, by snapshot and column name."""
    schema, by_snapshot = table.java.schema(), dict[int, dict[str, int]]()
    for file in listed(table.java.statisticsFiles()):
        distinct = {}
        for blob in listed(file.blobMetadata()):
            names = [schema.findColumnName(i) for i in listed(blob.fields())]
            if blob.type() == _SKETCH and len(names) == 1 and names[0] is not None:
                distinct[str(names[0])] = int(mapping(blob.properties()).get(_DISTINCT, 0))
        by_snapshot[int(file.snapshotId())] = distinct
    return by_snapshot


def partition_statistics(table: IcebergTable) -> set[int]:
    """Return the snapshots with partition statistics."""
    return {int(file.snapshotId()) for file in listed(table.java.partitionStatisticsFiles())}


def compute_columns(table: IcebergTable, snapshot_id: int, columns: Sequence[str]) -> None:
    """Compute and register column statistics of a snapshot, which reads these columns.

    :raises ConflictError: other writers won at every attempt that the table allows.
    """
    names = java_array(table.spark, "java.lang.String", columns)
    action = spark_actions(table.spark).computeTableStats(table.java).columns(names).snapshot(snapshot_id)
    with _registered(table):
        action.execute()


def compute_partitions(table: IcebergTable, snapshot_id: int) -> None:
    """Compute and register partition statistics of a snapshot, from the manifests that earlier ones lack.

    Iceberg makes one attempt to register them, with the metadata from before they were computed
    (``SetPartitionStatistics`` of 1.12); the commit of a transaction makes as many as any other commit.

    :raises ConflictError: other writers won at every attempt that the table allows.
    """
    transaction = table.java.newTransaction()
    spark_actions(table.spark).computePartitionStats(transaction.table()).snapshot(snapshot_id).execute()
    with _registered(table):
        transaction.commitTransaction()


def remove_statistics(table: IcebergTable, selects: Callable[[str], bool]) -> list[str]:
    """Remove statistics files from the metadata and return their locations; the files stay.

    :raises ConflictError: other writers won at every attempt that the table allows.
    """
    columns, partitions = (
        [file for file in listed(files) if selects(str(file.path()))]
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
    with conflict_errors(table, failure, "Nothing was changed; run again."):
        yield
    table.refresh()
