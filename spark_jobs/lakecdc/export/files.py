"""Files that Python tasks write through the table's FileIO, whose credentials Spark's own writers do not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.core_time import counted
from lakecdc.iceberg.file_io import output, storage_properties
from lakecdc.runtime.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable

_RESULT = "name string, rows long, bytes long"
Write = Callable[[Any, "Iterator[pa.RecordBatch]"], int]


@dataclass(frozen=True)
class WrittenFile:
    """A file written by a task.

    :param name: without the folder.
    :param bytes: its size.
    """

    name: str
    rows: int
    bytes: int


def write_parquet(table: IcebergTable, rows: DataFrame, folder: str) -> list[WrittenFile]:
    """Write rows as Parquet, one file per non-empty partition.

    :param table: its FileIO is used.
    :param folder: location for the files.
    """
    return _write(table, rows, folder, "parquet", _parquet)


def write_json_lines(table: IcebergTable, lines: DataFrame, folder: str) -> list[WrittenFile]:
    """Write texts as lines, one file per non-empty partition.

    :param lines: one column of text.
    """
    return _write(table, lines, folder, "jsonl", _lines)


def _write(table: IcebergTable, rows: DataFrame, folder: str, suffix: str, write: Write) -> list[WrittenFile]:
    task = partial(_task, properties=storage_properties(table), folder=folder, suffix=suffix, write=write)
    written = rows.mapInArrow(counted(table.spark, task), _RESULT).collect()
    return sorted((WrittenFile(*row) for row in written), key=lambda file: file.name)


def _task(
    batches: Iterator[pa.RecordBatch], *, properties: Mapping[str, str], folder: str, suffix: str, write: Write
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyspark import TaskContext

    settle()
    given = (batch for batch in batches if batch.num_rows)
    first = next(given, None)
    context = TaskContext.get()
    if first is None or context is None:
        return
    # the same name in each attempt, so that retries overwrite it
    name = f"part-{context.partitionId():05d}.{suffix}"
    with output(properties, f"{folder}/{name}").create(overwrite=True) as stream:
        rows = write(stream, chain([first], given))
        size = stream.tell()
    yield pa.RecordBatch.from_pylist([{"name": name, "rows": rows, "bytes": size}])


def _parquet(stream: Any, batches: Iterator[pa.RecordBatch]) -> int:
    import pyarrow.parquet as pq

    first = next(batches)
    with pq.ParquetWriter(stream, first.schema, compression="zstd") as writer:
        return sum(_written(writer, batch) for batch in chain([first], batches))


def _written(writer: Any, batch: pa.RecordBatch) -> int:
    writer.write_batch(batch)
    return batch.num_rows


def _lines(stream: Any, batches: Iterator[pa.RecordBatch]) -> int:
    rows = 0
    for batch in batches:
        stream.write("".join(f"{line}\n" for line in batch.column(0).to_pylist()).encode())
        rows += batch.num_rows
    return rows
