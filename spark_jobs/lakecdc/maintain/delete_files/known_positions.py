"""Positions that deletion vectors and position-delete files name already, read by Python tasks.

A reader of Iceberg's would go through every row of the data files to tell which of them are deleted; their delete files
say so in a few bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.file_io import source, storage_properties
from lakecdc.iceberg.jvm import listed
from lakecdc.local_relation import dealt
from lakecdc.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.scan import FileTask
    from lakecdc.iceberg.table import IcebergTable

_DELETE = "file_number int, data_file string, location string, format string, offset long, length long"
_POSITION = "file_number int, position long"
_FORMATS = ("PUFFIN", "PARQUET")
#: pairs of data file and delete file that the driver asks the JVM about, each half a millisecond
MAX_PAIRS = 20_000


@dataclass(frozen=True)
class DeleteFiles:
    """Delete files of data files, as tasks read them.

    :param rows: see ``_DELETE``.
    :param unread: data files with a delete file of another format.
    """

    rows: list[tuple[Any, ...]]
    unread: list[FileTask]


def delete_files(tasks: list[FileTask]) -> DeleteFiles:
    """The position deletes and deletion vectors that apply to data files."""
    if sum(task.others.size() for task in tasks) > MAX_PAIRS:
        return DeleteFiles([], tasks)
    rows, unread = [], []
    for task in tasks:
        found = [(str(d.format().toString()), d) for d in listed(task.others)]
        if any(name not in _FORMATS for name, _ in found):
            unread.append(task)
            continue
        rows += [
            (task.number, task.location, str(d.location()), name, d.contentOffset(), d.contentSizeInBytes())
            for name, d in found
        ]
    return DeleteFiles(rows, unread)


def read_positions(table: IcebergTable, rows: list[tuple[Any, ...]]) -> DataFrame:
    """The positions that delete files name of their data files.

    :param rows: from :func:`delete_files`.
    :return: ``file_number`` int, ``position`` long.
    """
    return dealt(table.spark, rows, _DELETE).mapInArrow(
        partial(run_task, target=Target(storage_properties(table))), _POSITION
    )


@dataclass(frozen=True)
class Target:
    """What a task needs to know.

    :param properties: pyiceberg settings of the table's FileIO; not shown, they may hold credentials.
    """

    properties: Mapping[str, str] = field(repr=False)


def run_task(batches: Iterator[pa.RecordBatch], target: Target) -> Iterator[pa.RecordBatch]:
    """The body of a Python task: delete files in, positions out."""
    import pyarrow as pa

    settle()
    for batch in batches:
        for row in batch.to_pylist():
            read = _vector if row["format"] == "PUFFIN" else _positions
            positions = read(row, target.properties)
            numbers = pa.repeat(pa.scalar(row["file_number"], pa.int32()), len(positions))
            yield pa.RecordBatch.from_arrays([numbers, positions], ["file_number", "position"])


def _vector(row: Mapping[str, Any], properties: Mapping[str, str]) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    from lakecdc.iceberg.puffin import decode_vector

    with source(properties, row["location"]).open() as stream:
        stream.seek(row["offset"])
        found = decode_vector(stream.read(row["length"]))
    return pa.array(np.frombuffer(found.to_array(), "uint64").astype("int64"))


def _positions(row: Mapping[str, Any], properties: Mapping[str, str]) -> pa.Array:
    """Those of one data file; the file may hold the positions of many (specification, "Position Delete Files")."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    pieces = []
    with source(properties, row["location"]).open() as stream:
        file = pq.ParquetFile(stream)
        for group in range(file.num_row_groups):
            found = file.read_row_group(group, columns=["file_path", "pos"], use_threads=False)
            pieces += found.filter(pc.equal(found["file_path"], row["data_file"]))["pos"].chunks
    return pa.chunked_array(pieces, pa.int64()).combine_chunks()
