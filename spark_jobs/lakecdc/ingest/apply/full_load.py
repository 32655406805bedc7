"""Writing a full load: by the tasks that read the source where they can, so that its rows never pass through Spark.

They can where the rows are written just as they are read, into a table whose partitions and file settings they know.
A value that Arrow does not take makes them give up: what they have written is discarded, and the rows go through
Spark, which takes the value or says what is wrong with it. Both ways leave the same table.
"""

from __future__ import annotations

import json
import logging
from math import prod
from typing import TYPE_CHECKING

from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.file_io import discard_folder, folder_of_work
from lakecdc.iceberg.written_files import WrittenFile, data_file
from lakecdc.ingest.apply import arrow_files
from lakecdc.ingest.apply.load_task import LoadTask
from lakecdc.ingest.apply.rows import stage_images
from lakecdc.ingest.formats.native.grouping import Bucket
from lakecdc.metadata.file_sizes import written_file_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.apply.publish import Staged
    from lakecdc.ingest.change import ArrowRows, TableBatch

log = logging.getLogger(__name__)

# a slice is cut into row groups of the partitions, which must not become too small, and has a file open for each
_MOST_PARTITIONS = 32


def stage(table: IcebergTable, batch: TableBatch, rows: DataFrame | None, staged: Staged) -> None:
    """Write the rows of a full load as data files, uncommitted.

    :param rows: ``op, row, order, source_time``; None if there are none.
    :param staged: takes the files, and what wrote them if the source left a choice.
    """
    source = batch.arrow_rows
    if rows is None:
        return
    if source is None:
        staged.data_files += stage_images(table, batch, rows, 0)
        return
    buckets, why = _buckets(table, batch), _refusal(table, batch, rows, source)
    if buckets is None:
        why = why or "the partitions are not a few buckets of the key"
    if why is None and buckets is not None:
        why = _write(table, batch, source, buckets, staged)
    staged.engine = f"jvm: {why}" if why else "native"
    if why:
        log.info("%s: Spark writes the full load, because %s", table.name, why)
        staged.data_files += stage_images(table, batch, rows, 0)


def _refusal(table: IcebergTable, batch: TableBatch, rows: DataFrame, source: ArrowRows) -> str | None:
    """Why the tasks cannot write the rows; None if they can."""
    if rows is not source.changes:
        return "the rows are cleaned on the way"
    why = source.refusal or arrow_files.refusal(table)
    there = definition.spark_types(table)
    other = [c for c in batch.columns if there.get(c.name) != c.type]
    if why is None and other:
        return f"column {other[0].name} is {other[0].type} at the source and {there.get(other[0].name)} in the table"
    return why


def _buckets(table: IcebergTable, batch: TableBatch) -> tuple[Bucket, ...] | None:
    """The table's partition fields; None if they are no buckets of the key, or make too many partitions."""
    found = arrow_files.key_buckets(table, batch.key, {c.name: c.type for c in batch.columns})
    return None if found is None or prod(bucket.count for bucket in found) > _MOST_PARTITIONS else found


def _write(
    table: IcebergTable, batch: TableBatch, source: ArrowRows, buckets: tuple[Bucket, ...], staged: Staged
) -> str | None:
    """Let the tasks write.

    :return: why they gave up, without a trace; None if they did not.
    """
    spec_id = definition.current_spec_id(table)
    places = {c.name: f"c{i}" for i, c in enumerate(batch.columns)}
    with folder_of_work(table, "load") as folder:
        task = LoadTask(
            arrow_files.FilePlace.of(table, folder),
            arrow_files.file_columns(table, places | {ORDER_COLUMN: "order", TIME_COLUMN: "time"}),
            source.read,
            tuple(places[name] for name in batch.key),
            buckets,
            source.order,
            source.time,
            written_file_bytes(table.properties),
        )
        found = table.spark.range(0, source.tasks, 1, source.tasks).mapInArrow(task, LoadTask.RESULT).collect()
        odd = next((str(row["odd"]) for row in found if row["odd"] is not None), None)
        if odd is None:
            files = [WrittenFile(r["location"], r["bytes"], tuple(json.loads(r["partition"]))) for r in found]
            staged.data_files += [data_file(table, file, spec_id) for file in files]
    if odd is not None:
        discard_folder(table, folder)
    return odd
