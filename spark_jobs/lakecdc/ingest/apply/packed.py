"""Writing a batch that the native engine holds packed: its tasks write the files of rows and of keys themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.file_io import folder_of_work
from lakecdc.ingest.formats.native import PackedRows, packing
from lakecdc.ingest.formats.native.fold import columns
from lakecdc.runtime.worker import settle
from lakecdc.writer.parquet import ArrowFile, FileColumn, FilePlace, file_columns, refusal
from lakecdc.writer.partitions import by_partition, partitioning_of
from lakecdc.writer.stage import RESULT, data_files, equality_deletes, told

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.apply.publish import Staged
    from lakecdc.ingest.batch import Batch
    from lakecdc.ingest.change import Rows

# beside files of completed rows, no more than these are not worth files of their own
_FEW_ROWS = 20_000
# rows one file is worth without partitions; more files only make more small ones
_ROWS_PER_FILE = 250_000
_Written = tuple[FilePlace, tuple[FileColumn, ...]]
_OWN = {ORDER_COLUMN: "order", TIME_COLUMN: "time_us"}


def writable(table: IcebergTable, batch: Batch, rows: Rows, live_specs: list[int]) -> PackedRows | None:
    """Return the rows if tasks hold them and can write the files; what they cannot is left to Iceberg's own writer."""
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
    :param memory: takes the deletes to be remembered: the key, order key and source time of each.
    :return: its data files.
    """
    keys = _key_columns(table, batch) if deletes else ()
    with folder_of_work(table, "ingest") as folder, _remembering(memory, batch.key) as remembered:
        task = WriteTask(FilePlace.of(table, folder), _columns(table, packed), keys, remembered)
        found = _cells(packed).mapInArrow(task, RESULT).collect()
        staged.data_files += data_files(table, found, "rows")
        staged.delete_files += equality_deletes(table, found, "keys", batch.key)
        return data_files(memory, found, "remembered") if memory else []


@contextmanager
def _remembering(memory: IcebergTable | None, key: Sequence[str]) -> Iterator[_Written | None]:
    if memory is None:
        yield None
        return
    sources = {name: f"k{place}" for place, name in enumerate(key)} | _OWN
    with folder_of_work(memory, "deletes") as folder:
        yield FilePlace.of(memory, folder), file_columns(memory, sources)


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
    :param remembered: place and columns of the files of deletes to be remembered; None if none are wanted.
    """

    place: FilePlace
    rows: tuple[FileColumn, ...]
    keys: tuple[FileColumn, ...]
    remembered: _Written | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the files of one partition after another; rows arrive in the order of partitions."""
        import pyarrow.compute as pc

        settle()
        current: _Partition | None = None
        deletes = ArrowFile(*self.remembered) if self.remembered else None
        for table in packing.all_of(batches):
            for values, part in by_partition(table, columns(table, "p")):
                if current is not None and current.values != values:
                    yield from current.close()
                    current = None
                current = current or _Partition(self, values)
                current.write(part)
            if deletes is not None:
                deletes.write(table.filter(pc.equal(table["op"], "d")))
        if current is not None:
            yield from current.close()
        if deletes is not None:
            yield from _finished(deletes, "remembered")


def _finished(file: ArrowFile, kind: str, partition: Sequence[str | None] = ()) -> Iterator[pa.RecordBatch]:
    """Finish a file and tell what was written, if anything was.

    :param kind: ``rows``, ``keys`` or ``remembered``.
    """
    if file.location is not None:
        yield told(file, kind, partition)


class _Partition:
    """The files of one partition."""

    def __init__(self, task: WriteTask, values: tuple[str | None, ...]) -> None:
        self.values = values
        self._rows = ArrowFile(task.place, task.rows)
        self._keys = ArrowFile(task.place, task.keys) if task.keys else None

    def write(self, table: pa.Table) -> None:
        """Add rows but those with placeholders, and the keys of all."""
        import pyarrow.compute as pc

        self._rows.write(table.filter(pc.and_(pc.not_equal(table["op"], "d"), table["open"].is_null())))
        if self._keys is not None:
            self._keys.write(table)

    def close(self) -> Iterator[pa.RecordBatch]:
        """Finish the files and tell them."""
        yield from _finished(self._rows, "rows", self.values)
        if self._keys is not None:
            yield from _finished(self._keys, "keys", self.values)
