"""What the tasks of a full load run that write its files themselves: rows of the source in, written files out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from lakecdc.ingest.apply.arrow_files import ArrowFile, FileColumn, FilePlace, by_partition, told
from lakecdc.ingest.change import OddValueError
from lakecdc.ingest.formats.native.grouping import Bucket, bucket_values
from lakecdc.row_values import without_values
from lakecdc.runtime.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa

# bytes of rows that are sorted and written at once; a task holds them twice meanwhile
_SLICE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class LoadTask:
    """Numbers of shares in, one row per written file out.

    :param columns: of the files.
    :param read: see :class:`lakecdc.ingest.change.ArrowRows`, as are ``order`` and ``time``.
    :param key: the key columns, as ``read`` names them.
    :param buckets: the partition fields.
    :param file_bytes: size at which a file is finished.
    """

    place: FilePlace
    columns: tuple[FileColumn, ...]
    read: Callable[[int], Iterator[pa.Table]]
    key: tuple[str, ...]
    buckets: tuple[Bucket, ...]
    order: str
    time: datetime
    file_bytes: int

    #: of the rows that come out; ``odd`` tells why the task gave up
    RESULT: ClassVar[str] = "location string, bytes bigint, partition string, odd string"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the shares that are named, one slice after another, until one task gives up."""
        settle()
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        files: dict[tuple[str, ...], ArrowFile] = {}
        try:
            # a slice as it was read must be gone while it is written
            for piece in map(self._sorted, slices(table for number in numbers for table in self.read(number))):
                if self.place.given_up:
                    break
                yield from self._write(piece, files)
        except OddValueError as error:
            self.place.give_up()
            yield told(self.RESULT, None, None, None, str(error))
        for partition, file in files.items():
            yield _finished(partition, file)

    def _write(self, piece: pa.Table, files: dict[tuple[str, ...], ArrowFile]) -> Iterator[pa.RecordBatch]:
        """Write a slice; files that are large enough are finished."""
        import pyarrow as pa

        try:
            for partition, rows in by_partition(piece, self._partitions):
                file = files.setdefault(partition, ArrowFile(self.place, self.columns))
                file.write(rows)
                if file.size >= self.file_bytes:
                    yield _finished(partition, files.pop(partition))
        except pa.ArrowInvalid as error:
            raise OddValueError(without_values(str(error))) from error

    @property
    def _partitions(self) -> list[str]:
        return [f"p{place}" for place in range(len(self.buckets))]

    def _sorted(self, piece: pa.Table) -> pa.Table:
        """A slice with all columns, in the order of its partitions and keys."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if any(piece[name].null_count for name in self.key):
            raise OddValueError("a key is null")
        for name, bucket in zip(self._partitions, self.buckets, strict=True):
            keys = piece[self.key[bucket.key]].combine_chunks()
            piece = piece.append_column(name, bucket_values(keys, bucket.count))
        by = (*self._partitions, *self.key)
        indices = pc.sort_indices(piece, [(name, "ascending") for name in by]) if by else None
        if indices is not None and not pc.all(pc.equal(pc.pairwise_diff(indices.cast(pa.int64())), 1)).as_py():
            piece = piece.take(indices)
        count = piece.num_rows
        piece = piece.append_column("order", pa.repeat(pa.scalar(self.order), count))
        return piece.append_column("time", pa.repeat(pa.scalar(self.time, pa.timestamp("us", "UTC")), count))


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


def _finished(partition: tuple[str, ...], file: ArrowFile) -> pa.RecordBatch:
    return told(LoadTask.RESULT, file.location, file.close(), json.dumps(partition), None)
