"""Tables whose thousands of data and delete files exist in metadata only, which is enough to plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.bulk import java_calls
from lakecdc.iceberg.forwarding import OBJECT
from lakecdc.iceberg.jvm import int_array, jvm

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable

_SPEC, _TEXT = "org.apache.iceberg.PartitionSpec", "java.lang.String"
_BUILDER = "org.apache.iceberg.DataFiles$Builder"


def append(table: IcebergTable, locations: Sequence[str], partition: str = "") -> None:
    """Commit data files of one partition in a few calls, however many there are.

    :param partition: as in a path, ``id_bucket=1``.
    """
    calls, java = java_calls(table.spark), table.refresh().java
    always = calls.method("java.util.Map", "getOrDefault", OBJECT, OBJECT)
    spec = always(jvm(table.spark).java.util.HashMap(), calls.it, java.spec())
    builder = calls.method("org.apache.iceberg.DataFiles", "builder", _SPEC)(spec)
    builder = calls.method(_BUILDER, "withPath", _TEXT)(builder, calls.it)
    builder = calls.method(_BUILDER, "withFormat", _TEXT)(builder, "PARQUET")
    if partition:
        builder = calls.method(_BUILDER, "withPartitionPath", _TEXT)(builder, partition)
    for size in ("withRecordCount", "withFileSizeInBytes"):
        builder = calls.method(_BUILDER, size, "long")(builder, 10)
    added = java.newAppend()
    append_file = calls.method("org.apache.iceberg.AppendFiles", "appendFile", "org.apache.iceberg.DataFile")
    file = calls.method(_BUILDER, "build")(builder)
    calls.sent(locations).forEach(calls.interface("java.util.function.Consumer", append_file(added, file)))
    added.commit()


def delete(table: IcebergTable, location: str, partition: str = "", *, of: str | None = None, key: int = 0) -> None:
    """Commit a delete file: equality deletes by a field id, or position deletes of a partition or of one data file.

    :param of: location of the data file.
    """
    java = table.refresh().java
    builder: Any = jvm(table.spark).org.apache.iceberg.FileMetadata.deleteFileBuilder(java.spec())
    builder = builder.ofEqualityDeletes(int_array(table.spark, [key])) if key else builder.ofPositionDeletes()
    builder = builder.withPath(location).withFormat("PARQUET").withRecordCount(1).withFileSizeInBytes(10)
    if partition:
        builder = builder.withPartitionPath(partition)
    if of:
        builder = builder.withReferencedDataFile(of)
    java.newRowDelta().addDeletes(builder.build()).commit()
