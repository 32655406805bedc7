"""Writing a batch that the native engine holds packed: its tasks write the files of rows and of keys themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.file_io import folder_of_work
from lakecdc.ingest.formats.native import packing
from lakecdc.ingest.formats.native.fold import columns
from lakecdc.runtime.worker import settle
from lakecdc.writer.files import PartitionFiles
from lakecdc.writer.parquet import FileColumn, FilePlace, file_columns, refusal
from lakecdc.writer.partitions import partitioning_of
from lakecdc.writer.stage import RESULT, data_files, equality_deletes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.apply.publish import Staged
    from lakecdc.ingest.batch import Batch
    from lakecdc.ingest.formats.native import PackedRows

# beside files of completed rows, no more than these are not worth files of their own
_FEW_ROWS = 20_000
# rows one file is worth without partitions; more files only make more small ones
_ROWS_PER_FILE = 250_000
_OWN = {ORDER_COLUMN: "order", TIME_COLUMN: "time_us"}


def can_be_written(table: IcebergTable, batch: Batch, packed: PackedRows, live_specs: list[int]) -> bool:
    """Tell whether tasks can write the files: what they do not know about is left to Iceberg's own writer."""
    types, sources = {f.name: f.type for f in packed.fields}, {name: f"k{i}" for i, name in enumerate(batch.key)}
    partitioning = partitioning_of(table, types, sources)
    return (
        packed.folded
        and not (packed.completed is not None and 0 < packed.facts.whole <= _FEW_ROWS)
        and not set(live_specs) - {definition.current_spec_id(table)}
        and partitioning is not None
        and partitioning == packed.grouping.partitioning
        and refusal(table) is None
    )


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
    :param memory: takes the deletes to be remembered, see :func:`stage_remembered`.
    :return: its data files.
    """
    keys = _key_columns(table, batch) if deletes else ()
    remembering = _remembering(memory, batch.key) if memory else nullcontext()
    with folder_of_work(table, "ingest") as folder, remembering as remembered:
        task = WriteTask(FilePlace.of(table, folder), _columns(table, packed), keys, remembered)
        found = _cells(packed).mapInArrow(task, RESULT).collect()
        staged.data_files += data_files(table, found, "rows")
        staged.delete_files += equality_deletes(table, found, "keys", batch.key)
        return data_files(memory, found, "remembered") if memory else []


def stage_remembered(memory: IcebergTable, packed: PackedRows, key: Sequence[str]) -> list[Any]:
    """Write the deletes of a batch as data files of the table that remembers them, uncommitted.

    :param memory: the key, order key and source time of deletes; one that :func:`refusal` has nothing against.
    :param key: names of the key columns.
    """
    with _remembering(memory, key) as task:
        return data_files(memory, _cells(packed).mapInArrow(task, RESULT).collect(), "remembered")


@contextmanager
def _remembering(memory: IcebergTable, key: Sequence[str]) -> Iterator[DeletesTask]:
    sources = {name: f"k{place}" for place, name in enumerate(key)} | _OWN
    with folder_of_work(memory, "deletes") as folder:
        yield DeletesTask(FilePlace.of(memory, folder), file_columns(memory, sources))


def _cells(packed: PackedRows) -> DataFrame:
    """Return the packed tables, in as many tasks as files are wanted where there are no partitions to tell."""
    cells = packed.cells.select("packed")
    return cells if packed.grouping.partitioning else cells.coalesce(max(1, -(-packed.facts.keys // _ROWS_PER_FILE)))


def _columns(table: IcebergTable, packed: PackedRows) -> tuple[FileColumn, ...]:
    return file_columns(table, {f.name: f"c{i}" for i, f in enumerate(packed.fields)} | _OWN)


def _key_columns(table: IcebergTable, batch: Batch) -> tuple[FileColumn, ...]:
    found = {c.name: c for c in file_columns(table, {name: f"k{place}" for place, name in enumerate(batch.key)})}
    return tuple(found[name] for name in batch.key)


@dataclass(frozen=True)
class WriteTask:
    """Packed cells in, one row per written file out.

    :param rows: columns of the files of rows.
    :param keys: columns of the files of keys; none if no such files are wanted.
    :param remembered: writes the deletes to be remembered; None if none are.
    """

    place: FilePlace
    rows: tuple[FileColumn, ...]
    keys: tuple[FileColumn, ...]
    remembered: DeletesTask | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write rows but those with placeholders, and the keys of all, in the order of partitions."""
        import pyarrow.compute as pc

        settle()
        # rows arrive in that order
        rows = PartitionFiles(self.place, self.rows, "rows", most=1)
        keys = PartitionFiles(self.place, self.keys, "keys", most=1) if self.keys else None
        deletes = self.remembered.files() if self.remembered else None
        for table in packing.all_of(batches):
            names = columns(table, "p")
            written = table.filter(pc.and_(pc.not_equal(table["op"], "d"), table["open"].is_null()))
            yield from rows.write(written, names)
            if keys is not None:
                yield from keys.write(table, names)
            if deletes is not None:
                yield from deletes.write(_deletes(table))
        for files in filter(None, (rows, keys, deletes)):
            yield from files.close()


@dataclass(frozen=True)
class DeletesTask:
    """Packed cells in, one row for the file of their deletes out.

    :param columns: of the file.
    """

    place: FilePlace
    columns: tuple[FileColumn, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the deletes."""
        settle()
        files = self.files()
        for table in packing.all_of(batches):
            yield from files.write(_deletes(table))
        yield from files.close()

    def files(self) -> PartitionFiles:
        """Return what to write them to."""
        return PartitionFiles(self.place, self.columns, "remembered")


def _deletes(table: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    return table.filter(pc.equal(table["op"], "d"))
