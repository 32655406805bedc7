"""Iceberg's objects for Parquet files of rows and keys written by Python tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.jvm import int_array, java_list, jvm, listed

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


@dataclass(frozen=True)
class WrittenFile:
    """A Parquet file with field ids.

    :param bytes: its size.
    :param partition: partition values as text, in the order of the spec's fields.
    """

    location: str
    bytes: int
    partition: tuple[str, ...] = ()


def data_file(table: IcebergTable, written: WrittenFile, spec_id: int) -> Any:
    """Describe a file of rows, with the metrics from its footer that the table keeps.

    :return: Java ``DataFile`` for a commit of this session.
    """
    view, spec = jvm(table.spark), table.java.specs().get(spec_id)
    builder = _described(table, view.org.apache.iceberg.DataFiles.builder(spec), written)
    if written.partition:
        builder = builder.withPartitionValues(java_list(table.spark, written.partition))
    return builder.build()


def equality_delete(table: IcebergTable, written: WrittenFile, spec_id: int, key: Sequence[str]) -> Any:
    """Describe a file of keys to delete.

    :param key: the equality columns.
    :return: Java ``DeleteFile`` for a commit of this session.
    """
    view, spec = jvm(table.spark), table.java.specs().get(spec_id)
    ids = int_array(table.spark, [table.field_id(column) for column in key])
    builder = view.org.apache.iceberg.FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(ids)
    builder = _described(table, builder, written)
    if written.partition:
        values = view.org.apache.iceberg.DataFiles.data(spec, _path(table, spec_id, written.partition))
        builder = builder.withPartition(values)
    return builder.build()


def _described(table: IcebergTable, builder: Any, written: WrittenFile) -> Any:
    view = jvm(table.spark)
    config = view.org.apache.iceberg.MetricsConfig.forTable(table.java)
    file = table.java.io().newInputFile(written.location, written.bytes)
    metrics = view.org.apache.iceberg.parquet.ParquetUtil.fileMetrics(file, config)
    return (
        builder.withPath(written.location).withFormat("PARQUET").withFileSizeInBytes(written.bytes).withMetrics(metrics)
    )


def _path(table: IcebergTable, spec_id: int, values: Sequence[str]) -> str:
    """Return partition values as in a path; buckets are numbers, which need no escaping."""
    names = [f.name() for f in listed(table.java.specs().get(spec_id).fields())]
    return "/".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
