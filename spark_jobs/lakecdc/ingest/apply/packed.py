"""Write a batch that tasks hold packed: they write its files of rows and of keys themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.file_io import folder_of_work
from lakecdc.ingest.engine import packing
from lakecdc.ingest.engine.fold import columns
from lakecdc.ingest.engine.packed import PackedRows
from lakecdc.runtime.worker import settle
from lakecdc.writer.files import RESULT, PartitionFiles
from lakecdc.writer.frame import iceberg_files
from lakecdc.writer.parquet import FileColumn, FilePlace, file_columns, refusal
from lakecdc.writer.partitions import partitioning_of

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.apply.publish import Staged
    from lakecdc.ingest.batch import Batch
    from lakecdc.ingest.change import Rows

# beside files of completed rows, no more than these are not worth files of their own
_FEW_ROWS = 20_000
# rows one file is worth without partitions; more files only make more small ones
_ROWS_PER_FILE = 250_000
_OWN = {ORDER_COLUMN: "order", TIME_COLUMN: "time_us"}


def writable(table: IcebergTable, batch: Batch, rows: Rows, live_specs: list[int]) -> PackedRows | None:
    """Return the rows if tasks hold them as the table's files need them; others are written as a frame."""
    if not isinstance(rows, PackedRows) or not rows.folded or set(live_specs) - {definition.current_spec_id(table)}:
        return None
    types, sources = {f.name: f.type for f in rows.fields}, {name: f"k{i}" for i, name in enumerate(batch.key)}
    partitioning = partitioning_of(table, types, sources)
    if partitioning is None or partitioning != rows.grouping.partitioning or refusal(table) is not None:
        return None
    few = rows.completed is not None and 0 < rows.facts.whole <= _FEW_ROWS
    return None if few else rows


def stage(
    table: IcebergTable,
    batch: Batch,
    packed: PackedRows,
    staged: Staged,
    *,
    deletes: bool,
    memory: IcebergTable | None = None,
) -> list[Any]:
    """Write the rows as data files and all keys as equality deletes, uncommitted, in one pass.

    :param staged: takes the files.
    :param deletes: whether the table has files that keys are to be deleted from.
    :param memory: takes the deletes to remember: the key, order key and source time of each.
    :return: its data files.
    """
    of_key = {name: f"k{i}" for i, name in enumerate(batch.key)}
    keys = file_columns(table, of_key, batch.key) if deletes else ()
    rows = file_columns(table, {f.name: f"c{i}" for i, f in enumerate(packed.fields)} | _OWN)
    cells = packed.cells.select("packed")
    if not packed.grouping.partitioning:
        # as many tasks as files are wanted
        cells = cells.coalesce(max(1, -(-packed.facts.keys // _ROWS_PER_FILE)))
    with ExitStack() as folders:
        place = FilePlace.of(table, folders.enter_context(folder_of_work(table, "ingest")))
        remembered = None
        if memory is not None:
            folder = folders.enter_context(folder_of_work(memory, "deletes"))
            remembered = FilePlace.of(memory, folder), file_columns(memory, of_key | _OWN)
        results = cells.mapInArrow(WriteTask(place, rows, keys, remembered), RESULT).collect()
        staged.data_files += iceberg_files(table, results, "rows")
        staged.delete_files += iceberg_files(table, results, "keys", batch.key)
        return iceberg_files(memory, results, "remembered") if memory else []


@dataclass(frozen=True)
class WriteTask:
    """Packed cells in, one row per written file out.

    :param rows: columns of the files of rows.
    :param keys: columns of the files of keys; empty to write none.
    :param remembered: place and columns of the files of remembered deletes; None to write none.
    """

    place: FilePlace
    rows: tuple[FileColumn, ...]
    keys: tuple[FileColumn, ...]
    remembered: tuple[FilePlace, tuple[FileColumn, ...]] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write rows but those with placeholders, and the keys of all, in the order of partitions."""
        import pyarrow.compute as pc

        settle()
        # rows arrive in that order
        rows = PartitionFiles(self.place, self.rows, "rows", most=1)
        keys = PartitionFiles(self.place, self.keys, "keys", most=1) if self.keys else None
        deletes = PartitionFiles(*self.remembered, "remembered") if self.remembered else None
        for table in packing.all_of(batches):
            names = columns(table, "p")
            written = table.filter(pc.and_(pc.not_equal(table["op"], "d"), table["open"].is_null()))
            yield from rows.write(written, names)
            if keys is not None:
                yield from keys.write(table, names)
            if deletes is not None:
                yield from deletes.write(table.filter(pc.equal(table["op"], "d")))
        for files in filter(None, (rows, keys, deletes)):
            yield from files.close()
