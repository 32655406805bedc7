"""Writing a full load: by the tasks that read the source where they can, so that its rows never pass through Spark.

They can where the rows are written just as they are read, into a table whose partitions and file settings they know.
A value that Arrow does not take makes them give up: what they have written is discarded, and the rows go through
Spark, which takes the value or says what is wrong with it. Both ways leave the same table.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.file_io import discard_folder, folder_of_work
from lakecdc.ingest.apply.load_task import MOST_PARTITIONS, LoadTask
from lakecdc.ingest.apply.rows import stage_images
from lakecdc.ingest.change import LoadRows
from lakecdc.metadata.file_sizes import written_file_bytes
from lakecdc.writer.parquet import FilePlace, file_columns, refusal
from lakecdc.writer.partitions import Partitioning, count_of, partitioning_of
from lakecdc.writer.stage import RESULT, data_files

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.apply.publish import Staged
    from lakecdc.ingest.batch import Batch

log = logging.getLogger(__name__)


def stage(table: IcebergTable, batch: Batch, staged: Staged) -> None:
    """Write the rows of a full load as data files, uncommitted.

    :param staged: takes the files, and what wrote them if the source left a choice.
    """
    rows = batch.rows
    if rows is None:
        return
    if not isinstance(rows, LoadRows):
        staged.data_files += stage_images(table, batch, rows.frame)
        return
    partitioning = partitioning_of(table, {c.name: c.type for c in batch.columns}, _sources(batch))
    why = _refusal(table, batch, rows) or _odd_partitions(partitioning)
    if why is None and partitioning is not None:
        why = _write(table, batch, rows, partitioning, staged)
    staged.engine = f"jvm: {why}" if why else "native"
    if why:
        log.info("%s: Spark writes the full load, because %s", table.name, why)
        staged.data_files += stage_images(table, batch, rows.frame)


def _sources(batch: Batch) -> dict[str, str]:
    """Return what tasks call the columns of a batch, see ``LoadRows.read``."""
    return {c.name: f"c{i}" for i, c in enumerate(batch.columns)}


def _refusal(table: IcebergTable, batch: Batch, rows: LoadRows) -> str | None:
    """Why the tasks cannot write the rows; None if they can."""
    why = rows.refusal or refusal(table)
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
    return None if count is None or count <= MOST_PARTITIONS else f"the table has {count} partitions"


def _write(table: IcebergTable, batch: Batch, rows: LoadRows, partitioning: Partitioning, staged: Staged) -> str | None:
    """Let the tasks write.

    :return: why they gave up, without a trace; None if they did not.
    """
    sources = _sources(batch)
    with folder_of_work(table, "load") as folder:
        task = LoadTask(
            FilePlace.of(table, folder),
            file_columns(table, sources | {ORDER_COLUMN: "order", TIME_COLUMN: "time"}),
            rows.read,
            tuple(sources[name] for name in batch.key),
            partitioning,
            rows.order,
            rows.time,
            written_file_bytes(table.properties),
        )
        found = table.spark.range(0, rows.tasks, 1, rows.tasks).mapInArrow(task, RESULT).collect()
        odd = next((str(row["odd"]) for row in found if row["odd"] is not None), None)
        if odd is None:
            staged.data_files += data_files(table, found, "rows")
    if odd is not None:
        discard_folder(table, folder)
    return odd
