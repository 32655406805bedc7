"""Write the rows of a DataFrame as files of a table: with Arrow in tasks, or with Iceberg's writer if tasks cannot."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.definition import current_spec_id, spark_types
from lakecdc.iceberg.file_io import folder_of_work
from lakecdc.iceberg.staging import WrittenFile, describe, stage_equality_deletes, stage_rows
from lakecdc.iceberg.table import IcebergTable
from lakecdc.runtime.worker import settle
from lakecdc.sql import quoted_column
from lakecdc.writer.files import RESULT, PartitionFiles, slices
from lakecdc.writer.parquet import FileColumn, FileLayout, refusal
from lakecdc.writer.partitions import columns_of, in_order, partitioning_of, with_partitions

log = logging.getLogger(__name__)

_KIND = "frame"


Fill = Callable[[pa.Table, Mapping[str, str]], pa.Table]


@dataclass(frozen=True)
class Added:
    """A column that tasks fill while they write rows; Iceberg's writer does not write it.

    :param fill: returns rows with the column's source, given the sources of the table's columns by name.
    """

    column: FileColumn
    fill: Fill


def stage_frame(
    table: IcebergTable,
    rows: DataFrame,
    key: Sequence[str] = (),
    spec_id: int | None = None,
    added: Added | None = None,
) -> list[Any]:
    """Write rows as data files of a table, or keys as equality-delete files, uncommitted.

    :param rows: the table's columns in its types, see :func:`lakecdc.iceberg.staging.columns_of`, or just its key
        columns; rows grouped by partition make fewer files.
    :param key: the equality columns; empty for data files.
    :param spec_id: partition spec of delete files, which apply only to data files of that spec; default: the current.
    :return: Java ``DataFile`` or ``DeleteFile`` objects for a commit of this session.
    """
    spec_id = current_spec_id(table) if spec_id is None else spec_id
    types = spark_types(table)
    sources = {name: f"c{place}" for place, name in enumerate(key or types)}
    partitioning = partitioning_of(table, types, sources, spec_id)
    why = refusal(table, partitioning)
    if why or partitioning is None:
        log.info("%s: Iceberg's own writer writes the rows, because %s", table.name, why)
        staged = stage_equality_deletes(table, rows, key, spec_id) if key else stage_rows(table, rows)
        return [file for file in staged if int(file.recordCount())]
    with folder_of_work(table, _KIND) as folder:
        layout = FileLayout.of(table, folder, sources, partitioning, key)
        if added is not None:
            layout = layout.with_column(added.column)
        task = partial(_write, layout=layout, sources=sources, fill=added.fill if added else None)
        given = rows.select(*[F.col(quoted_column(name)).alias(source) for name, source in sources.items()])
        return iceberg_files(table, run_tasks(given, task, RESULT).collect(), _KIND, key, spec_id)


def iceberg_files(
    table: IcebergTable, results: Iterable[Row], kind: str, key: Sequence[str] = (), spec_id: int | None = None
) -> list[Any]:
    """Describe the files of one kind to Iceberg.

    :param results: rows of :data:`~lakecdc.writer.files.RESULT`.
    :param key: the equality columns; empty for data files.
    :param spec_id: partition spec of the files; default: the current.
    :return: Java ``DataFile`` or ``DeleteFile`` objects for a commit of this session.
    """
    written = [
        WrittenFile(row["location"], row["bytes"], tuple(json.loads(row["partition"])), nans=row["nans"])
        for row in results
        if row["kind"] == kind
    ]
    return describe(table, written, current_spec_id(table) if spec_id is None else spec_id, key)


def _write(
    batches: Iterable[pa.RecordBatch], layout: FileLayout, sources: Mapping[str, str], fill: Fill | None
) -> Iterator[pa.RecordBatch]:
    """Write one slice after another, each in the order of its partitions; yield one row per file. Runs in a task."""
    settle()
    files, partitioning = PartitionFiles(layout, _KIND), layout.partitioning
    for piece in slices(pa.Table.from_batches([batch]) for batch in batches):
        piece = fill(piece, sources) if fill else piece
        yield from files.write(in_order(with_partitions(piece, partitioning), columns_of(partitioning)))
    yield from files.close()
