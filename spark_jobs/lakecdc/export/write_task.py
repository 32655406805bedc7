"""Write a file of changes in a task; separate from the driver's code, which workers need not import."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakecdc.iceberg.file_io import output
from lakecdc.runtime.worker import settle

#: a row per written file
RESULT = "name string, rows long, bytes long"


def write_file(
    batches: Iterator[pa.RecordBatch], *, properties: Mapping[str, str], folder: str, suffix: str
) -> Iterator[pa.RecordBatch]:
    """Write a file through the table's FileIO, whose credentials Spark's own writers do not know.

    :param suffix: ``parquet``, or ``jsonl`` for lines of text.
    """
    from pyspark import TaskContext

    settle()
    given = (batch for batch in batches if batch.num_rows)
    first = next(given, None)
    context = TaskContext.get()
    if first is None or context is None:
        return
    # the same name in each attempt, so that retries overwrite it
    name = f"part-{context.partitionId():05d}.{suffix}"
    with output(properties, f"{folder}/{name}") as stream:
        rows = (_write_parquet if suffix == "parquet" else _write_lines)(stream, first, given)
        size = stream.tell()
    yield pa.RecordBatch.from_pylist([{"name": name, "rows": rows, "bytes": size}])


def _write_parquet(stream: Any, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> int:
    rows = 0
    with pq.ParquetWriter(stream, first.schema, compression="zstd") as writer:
        for batch in chain([first], others):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _write_lines(stream: Any, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> int:
    rows = 0
    for batch in chain([first], others):
        stream.write("".join(f"{line}\n" for line in batch.column(0).to_pylist()).encode())
        rows += batch.num_rows
    return rows
