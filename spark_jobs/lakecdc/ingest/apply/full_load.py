"""Writing a full load: by the tasks that read the source where they can, so that its rows never pass through Spark.

They can where the rows are written just as they are read, into a table whose partitions and file settings they know.
Partitions that they cannot write make them give up: what they have written is discarded, and the rows go through Spark.
Both ways leave the same table. Rows with values that do not fit go to the quarantine once the others are written: tasks
return them, and where Spark writes, it reads the source again to find them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.file_io import discard_folder, folder_of_work
from lakecdc.ingest.apply.load_task import LoadTask
from lakecdc.ingest.apply.rows import stage_images
from lakecdc.writer.files import MOST_OPEN
from lakecdc.writer.parquet import FilePlace, file_columns, refusal
from lakecdc.writer.partitions import Partitioning, count_of, partitioning_of
from lakecdc.writer.stage import RESULT, data_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.apply.publish import Staged
    from lakecdc.ingest.batch import Batch
    from lakecdc.ingest.change import Load


def stage(table: IcebergTable, batch: Batch, staged: Staged) -> None:
    """Write the rows of a full load as data files, uncommitted.

    :param staged: takes the files, and what wrote them if the source left a choice.
    """
    rows = batch.rows
    if rows is None:
        return
    why = _write(table, batch, rows.load, staged) if rows.load else None
    if why or not rows.load:
        staged.data_files += stage_images(table, batch, rows.frame)
        keep_misfits(batch)
    if rows.load:
        staged.engine = f"jvm: {why}" if why else "native"


def keep_misfits(batch: Batch) -> None:
    """Hand on the rows of a full load that Spark has left out, because their values do not fit."""
    load = batch.rows.load if batch.rows else None
    if load is None or not load.left_out.value:
        return
    seen = Observation()
    counted = load.judged.observe(seen, F.count(F.lit(1)).alias("rows"))
    batch.commit.keep_misfits(counted.where("misfits IS NOT NULL").localCheckpoint(), seen.get["rows"])


def _sources(batch: Batch) -> dict[str, str]:
    """Return what tasks call the columns of a batch, see ``Load.read``."""
    return {c.name: f"c{i}" for i, c in enumerate(batch.columns)}


def _refusal(table: IcebergTable, batch: Batch, load: Load) -> str | None:
    """Why the tasks cannot write the rows; None if they can."""
    why = load.refusal or refusal(table)
    there = definition.spark_types(table)
    other = [c for c in batch.columns if there.get(c.name) != c.type]
    if why is None and other:
        return f"column {other[0].name} is {other[0].type} at the source and {there.get(other[0].name)} in the table"
    return why


def _odd_partitions(partitioning: Partitioning | None) -> str | None:
    """Return why tasks cannot write the table's partitions, as far as it shows before the rows are read."""
    if partitioning is None:
        return "the table is partitioned by transforms that tasks cannot evaluate"
    count = count_of(partitioning)
    return None if count is None or count <= MOST_OPEN else f"the table has {count} partitions"


def _write(table: IcebergTable, batch: Batch, load: Load, staged: Staged) -> str | None:
    """Let the tasks write, if they can.

    :return: why they do not, without a trace; None if they did.
    """
    sources = _sources(batch)
    partitioning = partitioning_of(table, {c.name: c.type for c in batch.columns}, sources)
    why = _refusal(table, batch, load) or _odd_partitions(partitioning)
    if why is not None or partitioning is None:
        return why
    with folder_of_work(table, "load") as folder:
        task = LoadTask(
            FilePlace.of(table, folder),
            file_columns(table, sources | {ORDER_COLUMN: "order", TIME_COLUMN: "time"}),
            load.read,
            tuple(sources[name] for name in batch.key),
            partitioning,
            load.order,
            load.time,
        )
        results = table.spark.range(0, load.tasks, 1, load.tasks).mapInArrow(task, RESULT).persist()
        try:
            why = _take(table, batch, load, results, staged)
        finally:
            results.unpersist()
    if why is not None:
        discard_folder(table, folder)
    return why


def _take(table: IcebergTable, batch: Batch, load: Load, results: DataFrame, staged: Staged) -> str | None:
    """Take the files that tasks have written, and hand on the rows that do not fit.

    :return: why one gave up; None if none did.
    """
    found = results.select("*", F.col("cell").isNotNull().alias("misfits")).drop("cell").collect()
    why = next((str(row["odd"]) for row in found if row["odd"] is not None), None)
    if why is not None:
        return why
    files = data_files(table, found, "rows")
    staged.data_files += files
    if any(row["misfits"] for row in found):
        misfits = load.unpacked(results.select("cell").where("cell IS NOT NULL")).localCheckpoint()
        written = sum(int(file.recordCount()) for file in files)
        batch.commit.keep_misfits(misfits, written + misfits.count())
    return None
