"""What the tasks of a full load run that write its files themselves: rows of the source in, written files out.

Rows with values that do not fit their columns are in no file: they are handed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lakecdc.ingest.engine import packing
from lakecdc.ingest.formats.text_columns import MISFITS
from lakecdc.row_values import without_values
from lakecdc.runtime.worker import settle
from lakecdc.writer.files import slices
from lakecdc.writer.parquet import ArrowFile, FileColumn, FilePlace
from lakecdc.writer.partitions import Partitioning, Values, by_partition, columns_of, with_partitions
from lakecdc.writer.stage import gave_up, left_out, told

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.ingest.change import ReadShare

#: partitions that tasks write: each takes row groups of a slice, which must not become too small, and has a file open
MOST_PARTITIONS = 32


class OddValueError(Exception):
    """Raised for a value that tasks cannot write."""


@dataclass(frozen=True)
class LoadTask:
    """Numbers of shares in, one row per written file out, and packed cells of rows that do not fit.

    :param columns: of the files.
    :param read: see :class:`lakecdc.ingest.change.Load`, as are ``order`` and ``time``.
    :param key: the key columns, as ``read`` names them.
    :param partitioning: the partition fields.
    :param file_bytes: size at which a file is finished.
    """

    place: FilePlace
    columns: tuple[FileColumn, ...]
    read: ReadShare
    key: tuple[str, ...]
    partitioning: Partitioning
    order: str
    time: datetime
    file_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the shares that are named, one slice after another, until one task gives up."""
        settle()
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        files: dict[Values, ArrowFile] = {}
        try:
            # a slice as it was read must be gone while it is written
            for piece, misfits in map(self._parted, slices(table for number in numbers for table in self.read(number))):
                if self.place.given_up:
                    break
                yield from map(left_out, packing.cells(misfits))
                yield from self._write(piece, files)
        except OddValueError as error:
            self.place.give_up()
            yield gave_up(str(error))
        for partition, file in files.items():
            # those of the rows that were refused have never been made
            if file.location is not None:
                yield told(file, "rows", partition)

    def _write(self, piece: pa.Table, files: dict[Values, ArrowFile]) -> Iterator[pa.RecordBatch]:
        """Write a slice; files that are large enough are finished."""
        import pyarrow as pa

        try:
            for partition, rows in by_partition(piece, self._partitions):
                file = files.setdefault(partition, ArrowFile(self.place, self.columns))
                if len(files) > MOST_PARTITIONS:
                    raise OddValueError(f"the rows are of more than {MOST_PARTITIONS} partitions")
                file.write(rows)
                if file.size >= self.file_bytes:
                    yield told(files.pop(partition), "rows", partition)
        except pa.ArrowInvalid as error:
            raise OddValueError(without_values(str(error))) from error

    @property
    def _partitions(self) -> list[str]:
        return columns_of(self.partitioning)

    def _parted(self, piece: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the rows of a slice that fit, as they are written, and the others."""
        fits, misfits = piece[MISFITS].is_null(), piece.filter(piece[MISFITS].is_valid())
        piece = piece.drop_columns(MISFITS)
        return self._sorted(piece.filter(fits) if misfits.num_rows else piece), misfits

    def _sorted(self, piece: pa.Table) -> pa.Table:
        """Return a slice with all columns, in the order of its partitions and keys."""
        import pyarrow as pa
        import pyarrow.compute as pc

        piece = with_partitions(piece, self.partitioning)
        by = (*self._partitions, *self.key)
        indices = pc.sort_indices(piece, [(name, "ascending") for name in by]) if by else None
        if indices is not None and not pc.all(pc.equal(pc.pairwise_diff(indices.cast(pa.int64())), 1)).as_py():
            piece = piece.take(indices)
        count = piece.num_rows
        piece = piece.append_column("order", pa.repeat(pa.scalar(self.order), count))
        return piece.append_column("time", pa.repeat(pa.scalar(self.time, pa.timestamp("us", "UTC")), count))
