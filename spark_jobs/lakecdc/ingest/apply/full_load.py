"""Write a full load, if possible in the tasks that read the source, so that rows never pass through Spark.

Tasks can if rows are written unchanged, into a table whose partitions and file settings they support. Tasks that get
more partitions than they can write give up: their files are discarded, and the rows go through Spark. Both ways result
in the same table. Rows whose values do not fit go to the quarantine after the others are written: tasks return them; if
the rows went through Spark, the source is read again to find them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakecdc.contract.secrets import without_values
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.file_io import discard_folder, folder_of_work
from lakecdc.ingest.apply.rows import stage_images
from lakecdc.ingest.engine import packing
from lakecdc.ingest.formats.text_columns import MISFITS
from lakecdc.runtime.worker import TaskProgress, settle
from lakecdc.writer.files import MOST_OPEN, RESULT, FullError, PartitionFiles, result, slices
from lakecdc.writer.frame import iceberg_files
from lakecdc.writer.parquet import FileLayout, refusal
from lakecdc.writer.partitions import Partitioning, columns_of, count_of, partitioning_of, with_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.apply.publish import Staged
    from lakecdc.ingest.batch import Batch
    from lakecdc.ingest.change import Load, ReadShare


def stage(table: IcebergTable, batch: Batch, staged: Staged) -> None:
    """Write the rows of a full load as data files, uncommitted."""
    rows = batch.rows
    if rows is None:
        return
    why = _write(table, batch, rows.load, staged) if rows.load else None
    if why or not rows.load:
        staged.data_files += stage_images(table, batch, rows.frame)
        keep_misfits(batch)
    if rows.load:
        staged.written_by = f"Spark: {why}" if why else "tasks"


def keep_misfits(batch: Batch) -> None:
    """Pass the rows that Spark left out of a full load, because their values do not fit, to the quarantine."""
    load = batch.rows.load if batch.rows else None
    if load is None or not load.left_out.value:
        return
    seen = Observation()
    counted = load.judged.observe(seen, F.count(F.lit(1)).alias("rows"))
    batch.commit.keep_misfits(counted.where("misfits IS NOT NULL").localCheckpoint(), seen.get["rows"])


def _write(table: IcebergTable, batch: Batch, load: Load, staged: Staged) -> str | None:
    """Let the tasks write; if they cannot, discard their files and return the reason, else None."""
    # names of the columns in tasks, see ``Load.read``
    sources = {c.name: f"c{i}" for i, c in enumerate(batch.columns)}
    partitioning = partitioning_of(table, {c.name: c.type for c in batch.columns}, sources)
    why = _refusal(table, batch, load, partitioning)
    if why is not None or partitioning is None:
        return why
    with folder_of_work(table, "load") as folder:
        layout = FileLayout.of(table, folder, sources | {ORDER_COLUMN: "order", TIME_COLUMN: "time"}, partitioning)
        key = tuple(sources[name] for name in batch.key)
        task = LoadTask(layout, load.read, key, load.order, load.time, table.name)
        results = run_tasks(table.spark.range(0, load.tasks, 1, load.tasks), task, RESULT).persist()
        try:
            why = _take(table, batch, load, results, staged)
        finally:
            results.unpersist()
    if why is not None:
        discard_folder(table, folder)
    return why


def _refusal(table: IcebergTable, batch: Batch, load: Load, partitioning: Partitioning | None) -> str | None:
    """Return why the tasks cannot write the rows, if that is known before reading, or None."""
    why, there = load.refusal or refusal(table, partitioning), definition.spark_types(table)
    other = next((c for c in batch.columns if there.get(c.name) != c.type), None)
    if why is not None:
        return why
    if other is not None:
        return f"column {other.name} is {other.type} at the source and {there.get(other.name)} in the table"

    count = count_of(partitioning or ())
    return None if count is None or count <= MOST_OPEN else f"the table has {count} partitions"


def _take(table: IcebergTable, batch: Batch, load: Load, results: DataFrame, staged: Staged) -> str | None:
    """Collect the written files and pass on the rows that do not fit; return why a task gave up, or None."""
    rows = results.select("*", F.col("cell").isNotNull().alias("misfits")).drop("cell").collect()
    why = next((str(row["odd"]) for row in rows if row["odd"] is not None), None)
    if why is not None:
        return why
    files = iceberg_files(table, rows, "rows")
    staged.data_files += files
    if any(row["misfits"] for row in rows):
        misfits = load.unpacked(results.select("cell").where("cell IS NOT NULL")).localCheckpoint()
        written = sum(int(file.recordCount()) for file in files)
        batch.commit.keep_misfits(misfits, written + misfits.count())
    return None


class OddValueError(Exception):
    """Tasks cannot write a value."""


@dataclass(frozen=True)
class LoadTask:
    """Task that writes shares (see ``change.Load``): yields one row per file, and packed rows that do not fit."""

    layout: FileLayout
    read: ReadShare
    key: tuple[str, ...]
    order: str
    time: datetime
    table: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the numbered shares, one slice after another, until a task gives up."""
        settle()
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        # each file gets row groups of a slice, which must not become too small: other partitions make no room
        files = PartitionFiles(self.layout, "rows", makes_room=False)
        progress = TaskProgress(f"{self.table} (task {min(numbers, default=0) + 1})")
        try:
            # the read slice must be freed while it is written
            for piece, misfits in map(self._parted, slices(table for number in numbers for table in self.read(number))):
                if self.layout.given_up:
                    break
                yield from (result(cell=cell.to_pybytes()) for cell in packing.cells(misfits))
                progress.add(piece.num_rows, piece.nbytes)
                yield from self._write(piece, files)
        except (FullError, OddValueError) as error:
            self.layout.give_up()
            yield result(odd=str(error))
        yield from files.close()

    def _write(self, piece: pa.Table, files: PartitionFiles) -> Iterator[pa.RecordBatch]:
        try:
            yield from files.write(piece)
        except pa.ArrowInvalid as error:
            raise OddValueError(without_values(str(error))) from error

    def _parted(self, piece: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return the rows of a slice that fit, in written form, and the others."""
        fits, misfits = piece[MISFITS].is_null(), piece.filter(piece[MISFITS].is_valid())
        piece = piece.drop_columns(MISFITS)
        return self._sorted(piece.filter(fits) if misfits.num_rows else piece), misfits

    def _sorted(self, piece: pa.Table) -> pa.Table:
        """Return a slice with all columns, ordered by partition and key."""
        piece = with_partitions(piece, self.layout.partitioning)
        by = (*columns_of(self.layout.partitioning), *self.key)
        indices = pc.sort_indices(piece, [(name, "ascending") for name in by]) if by else None
        if indices is not None and not pc.all(pc.equal(pc.pairwise_diff(indices.cast(pa.int64())), 1)).as_py():
            piece = piece.take(indices)
        count = piece.num_rows
        piece = piece.append_column("order", pa.repeat(pa.scalar(self.order), count))
        return piece.append_column("time", pa.repeat(pa.scalar(self.time, pa.timestamp("us", "UTC")), count))
