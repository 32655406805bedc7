"""Write and report a task's files, one per partition, with as many open at once as its memory allows."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa

from lakecdc.writer.parquet import ArrowFile, FileLayout
from lakecdc.writer.partitions import Values, by_partition, columns_of

#: result rows of tasks: written files, with partition values and counts of NaNs as JSON; why a task gave up; packed
#: tables of rows that are not in files
RESULT = "location string, kind string, bytes bigint, partition string, nans string, odd string, cell binary"
# bytes of rows that are sorted and written at once; meanwhile a task holds them twice
_SLICE_BYTES = 64 * 1024 * 1024
#: maximum number of open files of a task: each buffers a row group, and on S3 a part of some megabytes
MOST_OPEN = 32


class FullError(Exception):
    """The rows have more partitions than files may be open."""


def result(**values: str | int | bytes) -> pa.RecordBatch:
    """Build a row of :data:`RESULT`; omitted columns are null."""
    types = {"string": pa.string(), "bigint": pa.int64(), "binary": pa.binary()}
    fields = [(name, types[kind]) for name, kind in (column.split() for column in RESULT.split(", "))]
    return pa.RecordBatch.from_pylist([values], schema=pa.schema(fields))


class PartitionFiles:
    """Files of one kind.

    :param kind: the writer's name for their content.
    :param most: maximum number of open files; one is enough for rows in the order of their partitions.
    :param makes_room: finish another file for one too many; otherwise refuse it.
    """

    def __init__(self, layout: FileLayout, kind: str, most: int = MOST_OPEN, *, makes_room: bool = True) -> None:
        self._layout, self._kind, self._most, self._makes_room = layout, kind, most, makes_room
        self._open: dict[Values, ArrowFile] = {}

    def write(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """Write rows, and report files finished because of their size or to make room.

        :param table: the rows of each partition together, see :func:`~lakecdc.writer.partitions.with_partitions`.
        :raises FullError: there is no room for a partition.
        """
        for values, rows in by_partition(table, columns_of(self._layout.partitioning)):
            if values not in self._open and len(self._open) == self._most:
                if not self._makes_room:
                    raise FullError(f"the rows have more than {self._most} partitions")
                yield self._finish(next(iter(self._open)))
            file = self._open.get(values) or ArrowFile(self._layout)
            # a file whose first rows are refused is never created
            file.write(rows)
            self._open[values] = file
            if file.size >= self._layout.file_bytes:
                yield self._finish(values)

    def close(self) -> Iterator[pa.RecordBatch]:
        for values in list(self._open):
            yield self._finish(values)

    def _finish(self, values: Values) -> pa.RecordBatch:
        file = self._open.pop(values)
        size = file.close()
        assert file.location is not None
        return result(
            location=file.location,
            kind=self._kind,
            bytes=size,
            partition=json.dumps(values),
            nans=json.dumps(file.nans),
        )


def slices(
    tables: Iterable[pa.Table], most_bytes: int = _SLICE_BYTES, most_rows: int = sys.maxsize
) -> Iterator[pa.Table]:
    """Concatenate tables up to a size, by default the size that is sorted and written at once."""
    gathered: list[pa.Table] = []
    size = rows = 0
    for table in tables:
        gathered.append(table)
        size, rows = size + table.nbytes, rows + table.num_rows
        if size >= most_bytes or rows >= most_rows:
            whole = [pa.concat_tables(gathered)]
            gathered, size, rows = [], 0, 0
            # the generator must not hold the slice while it is written
            yield whole.pop()
    if gathered:
        yield pa.concat_tables(gathered)
