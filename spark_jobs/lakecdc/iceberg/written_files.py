"""Iceberg's objects for Parquet files of rows and keys written by Python tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.jvm import int_array, jvm, listed

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


@dataclass(frozen=True)
class WrittenFile:
    """A Parquet file with field ids.

    :param bytes: its size.
    :param partition: partition values as JSON has them, in the order of the spec's fields but those that are always
        null.
    """

    location: str
    bytes: int
    partition: tuple[str | int | bool | None, ...] = ()


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
        self._type, fields = self._spec.partitionType(), listed(self._spec.fields())
        self._ids = [str(f.fieldId()) for f in fields if str(f.transform().toString()) != "void"]

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
        if self._spec.isPartitioned():
            values = json.dumps(dict(zip(self._ids, written.partition, strict=True)))
            builder = builder.withPartition(self._apache.SingleValueParser.fromJson(self._type, values))
        return builder.build()
