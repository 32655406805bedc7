"""Iceberg's objects for Parquet files of rows and keys written by Python tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.jvm import int_array, java_list, jvm, listed

# what stands for null among partition values as text
_NULL = "__HIVE_DEFAULT_PARTITION__"

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


@dataclass(frozen=True)
class WrittenFile:
    """A Parquet file with field ids.

    :param bytes: its size.
    :param partition: partition values as text, in the order of the spec's fields but those that are always null.
    """

    location: str
    bytes: int
    partition: tuple[str | None, ...] = ()


def data_file(table: IcebergTable, written: WrittenFile, spec_id: int) -> Any:
    """Describe a file of rows, with the metrics from its footer that the table keeps.

    :return: Java ``DataFile`` for a commit of this session.
    """
    return _described(table, _data_files(table, spec_id), written, spec_id).build()


def equality_delete(table: IcebergTable, written: WrittenFile, spec_id: int, key: Sequence[str]) -> Any:
    """Describe a file of keys to delete.

    :param key: the equality columns.
    :return: Java ``DeleteFile`` for a commit of this session.
    """
    view, spec = jvm(table.spark), table.java.specs().get(spec_id)
    ids = int_array(table.spark, [table.field_id(column) for column in key])
    builder = view.org.apache.iceberg.FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(ids)
    return _described(table, builder, written, spec_id).build()


def _data_files(table: IcebergTable, spec_id: int) -> Any:
    return jvm(table.spark).org.apache.iceberg.DataFiles.builder(table.java.specs().get(spec_id))


def _described(table: IcebergTable, builder: Any, written: WrittenFile, spec_id: int) -> Any:
    view = jvm(table.spark)
    config = view.org.apache.iceberg.MetricsConfig.forTable(table.java)
    file = table.java.io().newInputFile(written.location, written.bytes)
    metrics = view.org.apache.iceberg.parquet.ParquetUtil.fileMetrics(file, config)
    builder = builder.withPath(written.location).withFormat("PARQUET")
    builder = builder.withFileSizeInBytes(written.bytes).withMetrics(metrics)
    partition = _partition(table, written, spec_id)
    return builder if partition is None else builder.withPartition(partition)


def _partition(table: IcebergTable, written: WrittenFile, spec_id: int) -> Any:
    """Return the partition of a file, a Java ``StructLike``; None if the spec has none.

    Only the builder of data files reads values from text, each by the type of its field.
    """
    fields, given = listed(table.java.specs().get(spec_id).fields()), iter(written.partition)
    if not fields:
        return None
    values = [None if str(field.transform().toString()) == "void" else next(given) for field in fields]
    texts = java_list(table.spark, [_NULL if value is None else value for value in values])
    builder = _data_files(table, spec_id).withPath(written.location).withFormat("PARQUET")
    partition = builder.withFileSizeInBytes(0).withRecordCount(0).withPartitionValues(texts).build().partition()
    for place, value in enumerate(values):
        if value == _NULL:
            # a text, which Iceberg would take for null
            partition.set(place, value)
    return partition
