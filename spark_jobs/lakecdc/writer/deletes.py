"""Write one delete file or deletion vector per data file, in Python tasks through the table's FileIO.

It contains *all* deleted positions of its data file, including known ones. A deletion vector must, because readers use
nothing else. In format v2 it replaces the file's older position-delete files, so that their number does not grow.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.file_io import output
from lakecdc.iceberg.puffin import PuffinBuilder, bitmap
from lakecdc.iceberg.staging import WrittenDeletes
from lakecdc.metadata.names import PATH_ID, POSITION_ID
from lakecdc.runtime.worker import settle

if TYPE_CHECKING:
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame, Row

    from lakecdc.iceberg.table import IcebergTable

#: a task's results: one row per written file, or the number of an unread data file and the reason
RESULT = (
    "file_number int, location string, bytes long, records long, added long, lowest long, highest long, "
    "offset long, length long, unread string"
)
# columns of position-delete files (table specification, "Position Delete Files")
_COLUMNS = [(PATH_ID, "file_path", "string"), (POSITION_ID, "pos", "long")]


@dataclass(frozen=True)
class Target:
    """Settings for writing tasks.

    :param properties: pyiceberg settings of the table's FileIO; not shown, because they may contain credentials.
    :param data_files: file number to location.
    :param merge: numbers of the data files whose position deletes are merged even without new positions.
    """

    folder: str
    properties: Mapping[str, str] = field(repr=False)
    data_files: Mapping[int, str] = field(repr=False)
    merge: frozenset[int] = field(default=frozenset(), repr=False)


@dataclass
class FilePositions:
    """The deleted positions of one data file: known positions and new hits of equality deletes."""

    file_number: int
    known: BitMap64
    hit: BitMap64

    @property
    def added(self) -> int:
        """Return the number of new positions."""
        return len(self.hit - self.known)


#: writes delete files and describes them
Writer = Callable[[Iterable[FilePositions], Target], Iterator[WrittenDeletes]]


def writer_of(table: IcebergTable) -> Writer:
    """Return the writer for the table's format version."""
    return write_deletion_vectors if table.format_version >= 3 else write_position_deletes


def count_only(files: Iterable[FilePositions], _: Target) -> Iterator[WrittenDeletes]:
    """Describe what would be written, without writing it."""
    for file in files:
        deleted = file.known | file.hit
        yield WrittenDeletes(file.file_number, "", 0, len(deleted), file.added, deleted.min(), deleted.max())


def write_position_deletes(files: Iterable[FilePositions], target: Target) -> Iterator[WrittenDeletes]:
    """Write one Parquet file per data file, positions ascending (format v2)."""
    for file in files:
        deleted = file.known | file.hit
        location = f"{target.folder}/{file.file_number:05d}-{uuid.uuid4()}-deletes.parquet"
        table = _position_table(target.data_files[file.file_number], deleted)
        with output(target.properties, location) as stream:
            # Arrow's own schema in the footer would make Arrow readers see a dictionary instead of a string
            pq.write_table(table, stream, compression="zstd", store_schema=False)
            size = int(stream.tell())
        yield WrittenDeletes(file.file_number, location, size, len(deleted), file.added, deleted.min(), deleted.max())


def _position_table(data_file: str, positions: BitMap64) -> pa.Table:
    """Build the rows of a position-delete file with the reserved field ids and footer entries of Iceberg's writers."""
    values = np.frombuffer(positions.to_array(), dtype="int64")
    paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(values), dtype="int32")), pa.array([data_file]))
    fields = [
        pa.field(name, pa.int64() if kind == "long" else paths.type, False, {"PARQUET:field_id": str(field_id)})
        for field_id, name, kind in _COLUMNS
    ]
    columns = [{"id": field_id, "name": name, "required": True, "type": kind} for field_id, name, kind in _COLUMNS]
    schema = json.dumps({"type": "struct", "schema-id": 0, "fields": columns})
    footer = {"delete-type": "position", "iceberg.schema": schema}
    return pa.Table.from_arrays([paths, pa.array(values)], schema=pa.schema(fields, footer))


def write_deletion_vectors(files: Iterable[FilePositions], target: Target) -> Iterator[WrittenDeletes]:
    """Write the vectors of all data files to one Puffin file (format v3)."""
    builder, facts = PuffinBuilder("lakecdc"), []
    for file in files:
        deleted = file.known | file.hit
        blob = builder.add(target.data_files[file.file_number], deleted)
        facts.append((file.file_number, blob, file.added, deleted.min(), deleted.max()))
    if not facts:
        return
    content, location = builder.finish(), f"{target.folder}/{uuid.uuid4()}-deletes.puffin"
    with output(target.properties, location) as stream:
        stream.write(content)
    for number, blob, added, lowest, highest in facts:
        yield WrittenDeletes(
            number, location, len(content), blob.cardinality, added, lowest, highest, blob.offset, blob.length
        )


def write(positions: DataFrame, target: Target, writer: Writer, tasks: int) -> list[WrittenDeletes]:
    """Write the delete files of some data files.

    :param positions: ``file_number``, ``position``, and whether it was ``known``.
    :return: one entry per data file with newly deleted positions or merged deletes.
    """
    files = run_tasks(
        positions.repartition(max(1, tasks), "file_number").sortWithinPartitions("file_number"),
        partial(run_task, writer=writer, target=target),
        RESULT,
    )
    return collect_results(files.collect())[0]


def run_task(batches: Iterator[pa.RecordBatch], writer: Writer, target: Target) -> Iterator[pa.RecordBatch]:
    """Process the batches of a Python task: positions in, one result row per written file out."""
    settle()
    yield described(writer(without_unchanged(by_file(batches), target.merge), target))


def described(written: Iterable[WrittenDeletes], unread: Mapping[int, str] | None = None) -> pa.RecordBatch:
    """Build a task's result, see :data:`RESULT`.

    :param unread: by number of a data file, why it could not be read.
    """
    rows = [dataclasses.asdict(one) for one in written]
    rows += [{"file_number": number, "unread": why} for number, why in (unread or {}).items()]
    names = [f.name for f in dataclasses.fields(WrittenDeletes)]
    types = [pa.int32(), pa.string(), *[pa.int64()] * (len(names) - 2), pa.string()]
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(zip([*names, "unread"], types, strict=True))))


def collect_results(rows: Iterable[Row]) -> tuple[list[WrittenDeletes], dict[int, str]]:
    """Collect the written delete files of tasks' results, and why data files could not be read, by number."""
    names, about_files = [f.name for f in dataclasses.fields(WrittenDeletes)], list(rows)
    written = [WrittenDeletes(*(row[name] for name in names)) for row in about_files if row["location"] is not None]
    return written, {row["file_number"]: row["unread"] for row in about_files if row["unread"] is not None}


def without_unchanged(files: Iterable[FilePositions], merge: frozenset[int] = frozenset()) -> Iterator[FilePositions]:
    """Skip data files without new positions, whose delete files stay, except files to merge."""
    return (file for file in files if file.added or (file.known and file.file_number in merge))


def by_file(batches: Iterable[Any]) -> Iterator[FilePositions]:
    """Group batches of ``file_number, position, known``, sorted by file, into one bitmap pair per file at a time."""
    from pyroaring import BitMap64

    current: FilePositions | None = None
    for batch in batches:
        numbers, positions = batch.column(0).to_numpy(), batch.column(1).to_numpy()
        known = batch.column(2).to_numpy(zero_copy_only=False)
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for begin, end in pairwise(edges):
            if begin == end:
                continue
            number = int(numbers[begin])
            if current is None or current.file_number != number:
                if current is not None:
                    yield current
                current = FilePositions(number, BitMap64(), BitMap64())
            part, flags = positions[begin:end], known[begin:end]
            current.known |= bitmap(part[flags])
            current.hit |= bitmap(part[~flags])
    if current is not None:
        yield current
