"""The files of a task: one for each partition, as many of them open as its memory takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from lakecdc.writer.parquet import ArrowFile, FileColumn, FilePlace
from lakecdc.writer.partitions import Values, by_partition
from lakecdc.writer.stage import told

if TYPE_CHECKING:
    import pyarrow as pa

# bytes of rows that are sorted and written at once; a task holds them twice meanwhile
_SLICE_BYTES = 64 * 1024 * 1024
#: files that a task writes at once: each holds a row group, and on S3 a part of some megabytes
MOST_OPEN = 32


class FullError(Exception):
    """More partitions are written than files may be open."""


class PartitionFiles:
    """Files of one kind.

    :param kind: what is in them, in the writer's own words.
    :param most: how many are open at once; one is enough for rows in the order of their partitions.
    :param makes_room: one more finishes another; without it, it is refused.
    """

    def __init__(
        self,
        place: FilePlace,
        columns: Sequence[FileColumn],
        kind: str,
        most: int = MOST_OPEN,
        *,
        makes_room: bool = True,
    ) -> None:
        self._place, self._columns, self._kind, self._most = place, columns, kind, most
        self._makes_room = makes_room
        self._open: dict[Values, ArrowFile] = {}

    def write(self, table: pa.Table, names: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Write rows, and tell of the files that are finished, by their size or to make room.

        :param table: the rows of each partition together.
        :param names: its columns of partition values.
        :raises FullError: it is of a partition for which there is no room.
        """
        for values, rows in by_partition(table, names):
            if values not in self._open and len(self._open) == self._most:
                if not self._makes_room:
                    raise FullError(f"the rows are of more than {self._most} partitions")
                yield self._told(next(iter(self._open)))
            file = self._open.get(values) or ArrowFile(self._place, self._columns)
            # a file whose first rows are refused is never made
            file.write(rows)
            self._open[values] = file
            if file.size >= self._place.file_bytes:
                yield self._told(values)

    def close(self) -> Iterator[pa.RecordBatch]:
        """Finish the files that are open, and tell of them."""
        for values in list(self._open):
            yield self._told(values)

    def _told(self, values: Values) -> pa.RecordBatch:
        return told(self._open.pop(values), self._kind, values)


def slices(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Gather tables into some of about the size that is sorted and written at once."""
    import pyarrow as pa

    gathered: list[pa.Table] = []
    size = 0
    for table in tables:
        gathered.append(table)
        size += table.nbytes
        if size >= _SLICE_BYTES:
            whole = [pa.concat_tables(gathered)]
            gathered, size = [], 0
            yield whole.pop()
    if gathered:
        yield pa.concat_tables(gathered)
