"""Iceberg ``DeleteFile`` objects for delete files written by Python tasks."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.jvm import jvm
from lakecdc.metadata.names import PATH_ID, POSITION_ID

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


@dataclass(frozen=True)
class WrittenDeletes:
    """The written positions of one data file.

    :param file_number: the data file's :attr:`FileTask.number`.
    :param location: the delete file, or the Puffin file.
    :param bytes: size of that whole file.
    :param added: number of them that no position delete covered before.
    :param offset: first byte of the deletion vector; None in a Parquet file, like its length.
    """

    file_number: int
    location: str
    bytes: int
    records: int
    added: int
    lowest: int
    highest: int
    offset: int | None = None
    length: int | None = None


def delete_file(table: IcebergTable, data_file: Any, written: WrittenDeletes) -> Any:
    """Return the Java ``DeleteFile`` of positions, with the spec and partition of their Java ``DataFile``.

    Readers refuse a position delete of another partition than its data file, such as the equality delete's.
    """
    builder = (
        jvm(table.spark)
        .org.apache.iceberg.FileMetadata.deleteFileBuilder(table.java.specs().get(data_file.specId()))
        .ofPositionDeletes()
        .withPath(written.location)
        .withFileSizeInBytes(written.bytes)
        .withReferencedDataFile(data_file.location())
    )
    if data_file.partition().size():
        builder = builder.withPartition(data_file.partition())
    if written.offset is None:
        lower, upper = (_bounds(table, data_file.location(), at) for at in (written.lowest, written.highest))
        metrics = jvm(table.spark).org.apache.iceberg.Metrics(written.records, None, None, None, None, lower, upper)
        builder = builder.withFormat("PARQUET").withMetrics(metrics)
    else:
        builder = builder.withFormat("PUFFIN").withRecordCount(written.records)
        builder = builder.withContentOffset(written.offset).withContentSizeInBytes(written.length)
    return builder.build()


def _bounds(table: IcebergTable, path: str, position: int) -> Any:
    """Encode bounds in the specification's single-value serialisation: UTF-8, and 8 bytes little endian."""
    view = jvm(table.spark)
    bounds = view.java.util.HashMap()
    bounds.put(PATH_ID, view.java.nio.ByteBuffer.wrap(bytearray(path.encode())))
    bounds.put(POSITION_ID, view.java.nio.ByteBuffer.wrap(bytearray(struct.pack("<q", position))))
    return bounds
