"""Turn packed cells into rows; runs in Spark's Python tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.ingest.engine import packing
from lakecdc.ingest.engine.layout import COUNTS
from lakecdc.ingest.formats.structs import struct_of
from lakecdc.runtime.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa


def rows_of_cells(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of packed cells, which are the last column; runs in a task."""
    settle()
    for table in packing.all_of(batches):
        yield from table.to_batches()


def cells_of_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows as numbered cells, ``cell int, packed binary``; runs in a task."""
    import pyarrow as pa

    settle()
    cells = (cell for batch in batches for cell in packing.cells(pa.Table.from_batches([batch])))
    for number, cell in enumerate(cells):
        columns = [pa.array([number], pa.int32()), packing.binary(cell)]
        yield pa.RecordBatch.from_arrays(columns, ["cell", "packed"])


@dataclass(frozen=True)
class UnpackTask:
    """A packed frame's cells in, rows of the change frame out.

    :param names: names of the row's columns.
    :param key: names of the key's.
    :param only: ops that are wanted.
    """

    names: tuple[str, ...]
    key: tuple[str, ...]
    only: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Unpack one cell after another."""
        import pyarrow as pa
        import pyarrow.compute as pc

        settle()
        for table in packing.all_of(batches):
            wanted = table.filter(pc.is_in(table["op"], pa.array(list(self.only))))
            for batch in wanted.combine_chunks().to_batches():
                yield self._changes(batch)

    def _changes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        of = {name: batch.column(name) for name in batch.schema.names}
        # a delete has its key alone, but where there is none
        gone = pc.is_in(of["op"], pa.array(["d", "x"] if self.key else ["x"]))
        count, stayed = len(batch), pc.invert(of["moved"])
        columns = {
            "op": of["op"],
            "key": struct_of([(name, of[f"k{i}"]) for i, name in enumerate(self.key)], count),
            "row": struct_of([(name, of[f"c{i}"]) for i, name in enumerate(self.names)], count, gone),
            "open": of["open"],
            "old_key": struct_of([(name, of[f"o{i}"]) for i, name in enumerate(self.key)], count, stayed),
            **{name: of[name] for name in ("order", "time_us", "partition", *COUNTS)},
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
