"""Write the files of a full load in the tasks that read it.

Rows with values that do not fit their columns are left out of the files and returned to the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lakecdc.contract.secrets import without_values
from lakecdc.ingest.engine import packing
from lakecdc.ingest.formats.text_columns import MISFITS
from lakecdc.runtime.worker import settle
from lakecdc.writer.files import FullError, PartitionFiles, slices
from lakecdc.writer.parquet import FileColumn, FilePlace
from lakecdc.writer.partitions import Partitioning, columns_of, with_partitions
from lakecdc.writer.stage import gave_up, left_out

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.ingest.change import ReadShare


class OddValueError(Exception):
    """Raised for a value that tasks cannot write."""


@dataclass(frozen=True)
class LoadTask:
    """Numbers of shares in, one row per written file out, and packed cells of rows that do not fit.

    :param columns: of the files.
    :param read: see :class:`lakecdc.ingest.change.Load`, as are ``order`` and ``time``.
    :param key: the key columns, as ``read`` names them.
    :param partitioning: the partition fields.
    """

    place: FilePlace
    columns: tuple[FileColumn, ...]
    read: ReadShare
    key: tuple[str, ...]
    partitioning: Partitioning
    order: str
    time: datetime

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the shares that are named, one slice after another, until one task gives up."""
        settle()
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        # each file takes row groups of a slice, which must not become too small: other partitions make no room
        files = PartitionFiles(self.place, self.columns, "rows", makes_room=False)
        try:
            # a slice as it was read must be gone while it is written
            for piece, misfits in map(self._parted, slices(table for number in numbers for table in self.read(number))):
                if self.place.given_up:
                    break
                yield from map(left_out, packing.cells(misfits))
                yield from self._write(piece, files)
        except (FullError, OddValueError) as error:
            self.place.give_up()
            yield gave_up(str(error))
        yield from files.close()

    def _write(self, piece: pa.Table, files: PartitionFiles) -> Iterator[pa.RecordBatch]:
        """Write a slice; files that are large enough are finished."""
        import pyarrow as pa

        try:
            yield from files.write(piece, self._partitions)
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
