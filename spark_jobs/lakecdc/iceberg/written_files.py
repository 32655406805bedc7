"""Iceberg's objects for Parquet files of rows and keys written by Python tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def data_files(table: IcebergTable, written: Iterable[WrittenFile], spec_id: int) -> list[Any]:
    """Describe files of rows, with the metrics from their footers that the table keeps.

    :return: Java ``DataFile`` objects for a commit of this session.
    """
    description = _Description(table, spec_id)
    return [description.complete(description.data_files(), one) for one in written]


def equality_deletes(
    table: IcebergTable, written: Iterable[WrittenFile], spec_id: int, key: Sequence[str]
) -> list[Any]:
    """Describe files of keys to delete.

    :param key: the equality columns.
    :return: Java ``DeleteFile`` objects for a commit of this session.
    """
    description = _Description(table, spec_id)
    ids = int_array(table.spark, [table.field_id(column) for column in key])
    return [description.complete(description.equality_deletes(ids), one) for one in written]


class _Description:
    """Describes written files of one partition spec to Iceberg; looks up the spec and the metrics settings once."""

    def __init__(self, table: IcebergTable, spec_id: int) -> None:
        self._table, self._apache = table, jvm(table.spark).org.apache.iceberg
        self._spec = table.java.specs().get(spec_id)
        self._config = self._apache.MetricsConfig.forTable(table.java)
        self._is_void = [str(field.transform().toString()) == "void" for field in listed(self._spec.fields())]

    def data_files(self) -> Any:
        """Return a builder of a data file."""
        return self._apache.DataFiles.builder(self._spec)

    def equality_deletes(self, ids: Any) -> Any:
        """Return a builder of an equality-delete file.

        :param ids: field ids of the equality columns, a Java array.
        """
        return self._apache.FileMetadata.deleteFileBuilder(self._spec).ofEqualityDeletes(ids)

    def complete(self, builder: Any, written: WrittenFile) -> Any:
        """Return what a builder makes of a file."""
        file = self._table.java.io().newInputFile(written.location, written.bytes)
        metrics = self._apache.parquet.ParquetUtil.fileMetrics(file, self._config)
        builder = builder.withPath(written.location).withFormat("PARQUET")
        builder = builder.withFileSizeInBytes(written.bytes).withMetrics(metrics)
        return (builder.withPartition(self._partition(written)) if self._is_void else builder).build()

    def _partition(self, written: WrittenFile) -> Any:
        """Return the partition of a file, a Java ``StructLike``.

        Only the builder of data files reads values from text, each by the type of its field.
        """
        given = iter(written.partition)
        values = [None if is_void else next(given) for is_void in self._is_void]
        texts = java_list(self._table.spark, [_NULL if value is None else value for value in values])
        builder = self.data_files().withPath(written.location).withFormat("PARQUET")
        partition = builder.withFileSizeInBytes(0).withRecordCount(0).withPartitionValues(texts).build().partition()
        for place, value in enumerate(values):
            if value == _NULL:
                # a text, which Iceberg would take for null
                partition.set(place, value)
        return partition
