"""The naive ways to convert and clean up, which lose deletes; sharing code with the product would prove nothing."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lakecdc.iceberg.jvm import iterate, jvm
from lakecdc.iceberg.puffin import PuffinBuilder
from lakecdc.iceberg.table import IcebergTable
from tests.conftest import Lake

_FILE_PATH, _POSITION = 2147483546, 2147483545


def data_files(lake: Lake, name: str) -> list[Any]:
    """Return Java's data files of the head."""
    return [task.file() for task in iterate(lake.table(name).java.newScan().planFiles())]


def equality_deletes(table: IcebergTable) -> list[Any]:
    """Return Java's equality-delete files that Iceberg's planning pairs with a data file."""
    deletes = {}
    for task in iterate(table.java.newScan().planFiles()):
        for delete in task.deletes():
            if str(delete.content().toString()) == "EQUALITY_DELETES":
                deletes[str(delete.location())] = delete
    return list(deletes.values())


def physical_rows(lake: Lake, name: str) -> Any:
    """Return all physical rows with file and position, with deleted rows marked."""
    return lake.sql(f"SELECT *, _file, _pos, _deleted FROM lake.{name}").collect()


def convert_with_rewrite_files(lake: Lake, name: str) -> None:
    """Replace equality deletes by position deletes with ``RewriteFiles``: "delete files for delete files"."""
    table = lake.table(name)
    positions: dict[str, list[int]] = {}
    for row in physical_rows(lake, name):
        if row["_deleted"]:
            positions.setdefault(row["_file"], []).append(row["_pos"])
    files = {str(file.location()): file for file in data_files(lake, name)}
    rewrite = table.java.newRewrite()
    for delete in equality_deletes(table):
        rewrite.deleteFile(delete)
    for location, deleted in positions.items():
        rewrite.addFile(position_deletes(table, files[location], sorted(deleted)))
    rewrite.commit()


def position_deletes(table: IcebergTable, data_file: Any, positions: Sequence[int]) -> Any:
    """Write positions of one data file, as a Parquet file or a deletion vector, and describe the file to Iceberg."""
    vector = table.format_version >= 3
    location = f"{table.location}/data/{uuid.uuid4()}.{'puffin' if vector else 'parquet'}"
    path = location.removeprefix("file:")
    view = jvm(table.spark).org.apache.iceberg
    files = view.FileMetadata.deleteFileBuilder(table.java.specs().get(data_file.specId())).ofPositionDeletes()
    files = files.withPath(location).withReferencedDataFile(data_file.location()).withRecordCount(len(positions))
    if data_file.partition().size():
        files = files.withPartition(data_file.partition())
    if vector:
        builder = PuffinBuilder("naive")
        blob = builder.add(str(data_file.location()), BitMap64(positions))
        content = builder.finish()
        with open(path, "wb") as out:
            out.write(content)
        files = files.withFormat("PUFFIN").withContentOffset(blob.offset).withContentSizeInBytes(blob.length)
        return files.withFileSizeInBytes(len(content)).build()
    fields = [_field("file_path", pa.string(), _FILE_PATH), _field("pos", pa.int64(), _POSITION)]
    columns = [[str(data_file.location())] * len(positions), list(positions)]
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), path)
    with open(path, "rb") as written:
        size = len(written.read())
    return files.withFormat("PARQUET").withFileSizeInBytes(size).build()


def dangling_by_partition(lake: Lake, name: str) -> list[str]:
    """Return equality deletes that seem to apply to nothing: no older data file in their spec and partition."""
    entries = f"(SELECT * FROM lake.{name}.entries WHERE status < 2)"
    rows = lake.sql(
        f"""SELECT d.data_file.file_path FROM {entries} d LEFT JOIN
            (SELECT data_file.spec_id spec, data_file.partition part, min(sequence_number) oldest FROM {entries}
             WHERE data_file.content = 0 GROUP BY 1, 2) f
            ON d.data_file.spec_id = f.spec AND d.data_file.partition = f.part
            WHERE d.data_file.content = 2 AND (f.oldest IS NULL OR f.oldest >= d.sequence_number)"""
    )
    return [row[0] for row in rows.collect()]


def _field(name: str, kind: Any, field_id: int) -> Any:
    return pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(field_id)})
