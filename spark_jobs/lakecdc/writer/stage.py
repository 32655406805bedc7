"""Make Iceberg's objects of the files that tasks have written, for a commit of this session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg import written_files
from lakecdc.iceberg.definition import current_spec_id
from lakecdc.iceberg.written_files import WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.writer.parquet import ArrowFile
    from lakecdc.writer.partitions import Values

#: rows that tasks tell: the files they have written, why one gave up, and packed tables of what no file takes
RESULT = "location string, kind string, bytes bigint, partition string, odd string, cell binary"


def told(file: ArrowFile, kind: str, partition: Values = ()) -> pa.RecordBatch:
    """Finish a file, and return the row that tells of it.

    :param kind: what is in the file, in the writer's own words.
    :param partition: its partition values.
    """
    return _row(file.location, kind, file.close(), json.dumps(partition), None, None)


def gave_up(odd: str) -> pa.RecordBatch:
    """Return the row that tells why a task gave up."""
    return _row(None, None, None, None, odd, None)


def left_out(cell: pa.Buffer) -> pa.RecordBatch:
    """Return the row that hands on a packed table of rows that are not written."""
    return _row(None, None, None, None, None, cell.to_pybytes())


def data_files(table: IcebergTable, told: Sequence[Row], kind: str) -> list[Any]:
    """Return the Java ``DataFile`` of each file of a kind, of the table's current partition spec."""
    return written_files.data_files(table, _written(told, kind), current_spec_id(table))


def equality_deletes(table: IcebergTable, told: Sequence[Row], kind: str, key: Sequence[str]) -> list[Any]:
    """Return the Java ``DeleteFile`` of each file of a kind, of the table's current partition spec.

    :param key: the equality columns.
    """
    return written_files.equality_deletes(table, _written(told, kind), current_spec_id(table), key)


def _written(told: Sequence[Row], kind: str) -> list[WrittenFile]:
    return [
        WrittenFile(row["location"], row["bytes"], tuple(json.loads(row["partition"])))
        for row in told
        if row["kind"] == kind
    ]


def _row(*values: str | int | bytes | None) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [column.split() for column in RESULT.split(", ")]
    types = {"string": pa.string(), "bigint": pa.int64(), "binary": pa.binary()}
    arrays = [pa.array([value], types[kind]) for value, (_, kind) in zip(values, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in columns])
