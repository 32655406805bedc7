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
    :param partition: partition values as JSON has them, in the order of the spec's fields without those that are always
        null.
    """

    location: str
    bytes: int
    partition: tuple[str | int | bool | None, ...] = ()


def describe(table: IcebergTable, written: Iterable[WrittenFile], spec_id: int, key: Sequence[str] = ()) -> list[Any]:
    """Describe files, with the metrics from their footers that the table keeps.

    :param key: the equality columns of delete files; empty for data files.
    :return: Java ``DataFile`` or ``DeleteFile`` objects for a commit of this session.
    """
    apache = jvm(table.spark).org.apache.iceberg
    spec, config = table.java.specs().get(spec_id), apache.MetricsConfig.forTable(table.java)
    field_ids = [str(f.fieldId()) for f in listed(spec.fields()) if str(f.transform().toString()) != "void"]
    equality_ids = int_array(table.spark, [table.field_id(column) for column in key])

    def described(one: WrittenFile) -> Any:
        if key:
            builder = apache.FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(equality_ids)
        else:
            builder = apache.DataFiles.builder(spec)
        file = table.java.io().newInputFile(one.location, one.bytes)
        builder = builder.withPath(one.location).withFormat("PARQUET").withFileSizeInBytes(one.bytes)
        builder = builder.withMetrics(apache.parquet.ParquetUtil.fileMetrics(file, config))
        if spec.isPartitioned():
            values = json.dumps(dict(zip(field_ids, one.partition, strict=True)))
            builder = builder.withPartition(apache.SingleValueParser.fromJson(spec.partitionType(), values))
        return builder.build()

    return [described(one) for one in written]
