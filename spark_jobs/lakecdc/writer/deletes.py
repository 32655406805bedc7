"""One delete file or deletion vector per data file, written by Python tasks through the table's FileIO.

It contains *all* deleted positions of its data file, including known ones: a deletion vector must, because readers use
nothing else, and in format v2 it replaces the file's older position-delete files, so that their number does not grow
from run to run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from lakecdc.iceberg.core_time import counted
from lakecdc.iceberg.delete_file_objects import WrittenDeletes
from lakecdc.runtime.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap64
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable

#: a task's result: one row per written file, or only the number of an unreadable data file
RESULT = (
    "file_number int, location string, bytes long, records long, added long, lowest long, highest long, "
    "offset long, length long"
)


@dataclass(frozen=True)
class Target:
    """Settings for writing tasks.

    :param folder: location to write below.
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
    """The deleted positions of one data file.

    :param known: those in existing position deletes.
    :param hit: those that equality deletes match.
    """

    file_number: int
    known: BitMap64
    hit: BitMap64

    @property
    def added(self) -> int:
        """Return the number of new positions."""
        return int((self.hit - self.known).__len__())


class Writer(Protocol):
    """Writer of position files; see ``position_deletes`` and ``deletion_vectors``."""

    def __call__(self, files: Iterable[FilePositions], target: Target, /) -> Iterator[WrittenDeletes]:
        """Write files and describe them."""
        ...


def writer_of(table: IcebergTable) -> Writer:
    """Return the writer for the table's format version."""
    from lakecdc.writer.deletion_vectors import write_deletion_vectors
    from lakecdc.writer.position_deletes import write_position_deletes

    return write_deletion_vectors if table.format_version >= 3 else write_position_deletes


def count_only(files: Iterable[FilePositions], _: Target) -> Iterator[WrittenDeletes]:
    """Write nothing, and describe what would be written."""
    for file in files:
        deleted = file.known | file.hit
        yield WrittenDeletes(file.file_number, "", 0, len(deleted), file.added, deleted.min(), deleted.max())


def write(positions: DataFrame, target: Target, writer: Writer, tasks: int) -> list[WrittenDeletes]:
    """Write the delete files of some data files.

    :param positions: ``file_number``, ``position``, and whether it was ``known``.
    :param tasks: maximum number of writing tasks.
    :return: one entry per data file with newly deleted positions or merged deletes.
    """
    files = (
        positions.repartition(max(1, tasks), "file_number")
        .sortWithinPartitions("file_number")
        .mapInArrow(counted(positions.sparkSession, partial(run_task, writer=writer, target=target)), RESULT)
    )
    return collect_results(files)[0]


def run_task(batches: Iterator[pa.RecordBatch], writer: Writer, target: Target) -> Iterator[pa.RecordBatch]:
    """Process the batches of a Python task: positions in, one row per written file out."""
    settle()
    yield described(writer(without_unchanged(by_file(batches), target.merge), target))


def described(written: Iterable[WrittenDeletes], unread: Sequence[int] = ()) -> pa.RecordBatch:
    """Build a task's result, see :data:`RESULT`.

    :param unread: numbers of unreadable data files.
    """
    import pyarrow as pa

    rows = [dataclasses.asdict(one) for one in written] + [{"file_number": number} for number in unread]
    names = [f.name for f in dataclasses.fields(WrittenDeletes)]
    types = [pa.int32(), pa.string(), *[pa.int64()] * (len(names) - 2)]
    columns = [pa.array([row.get(name) for row in rows], kind) for name, kind in zip(names, types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names)


def collect_results(results: DataFrame) -> tuple[list[WrittenDeletes], frozenset[int]]:
    """Collect written delete files and the numbers of unreadable data files."""
    rows = results.collect()
    written = [WrittenDeletes(**row.asDict()) for row in rows if row["location"] is not None]
    return written, frozenset(row["file_number"] for row in rows if row["location"] is None)


def without_unchanged(files: Iterable[FilePositions], merge: frozenset[int] = frozenset()) -> Iterator[FilePositions]:
    """Skip data files whose positions are all covered, so that their delete files stay.

    :param merge: data files to include anyway, unless the merged files contain none of their positions.
    """
    return (file for file in files if file.added or (file.known and file.file_number in merge))


def by_file(batches: Iterable[Any]) -> Iterator[FilePositions]:
    """Group sorted batches into one bitmap pair per file, holding one file at a time.

    :param batches: record batches with ``file_number``, ``position``, ``known``, sorted by the first.
    """
    import numpy as np
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


def bitmap(positions: Any) -> BitMap64:
    """Build a set of positions from an array of them.

    :param positions: numpy array of non-negative integers.
    """
    from array import array

    from pyroaring import BitMap64

    # twice as fast as from the numpy array itself
    return BitMap64(array("Q", positions.astype("uint64").tobytes()))
