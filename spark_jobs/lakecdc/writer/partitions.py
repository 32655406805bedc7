"""Compute the partitions of a table's new files: values per row, and as Iceberg's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from math import prod
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.iceberg.definition import current_spec_id, partition_expressions, spark_types
from lakecdc.iceberg.table import IcebergTable
from lakecdc.model.columns import INTEGER_BYTES
from lakecdc.writer.transforms import Transform, parse_transform


@dataclass(frozen=True)
class PartitionColumn:
    """A partition field, with the tasks' name of its source column."""

    source: str
    transform: Transform


Partitioning = tuple[PartitionColumn, ...]
#: values of a partition as JSON
Values = tuple[str | int | bool | None, ...]


def find_partitioning(
    expressions: Sequence[str], types: Mapping[str, str], sources: Mapping[str, str]
) -> Partitioning | None:
    """Return the partition fields of transforms; None if tasks cannot evaluate them all.

    :param expressions: transforms in SQL.
    :param types: Spark SQL types of the columns that tasks have.
    :param sources: the tasks' names of these columns.
    """
    fields = []
    for transform in map(parse_transform, expressions):
        if transform is None or transform.column not in sources or not transform.takes(types[transform.column]):
            return None
        fields.append(PartitionColumn(sources[transform.column], transform))
    return tuple(fields)


def partitioning_of(
    table: IcebergTable, types: Mapping[str, str], sources: Mapping[str, str], spec_id: int | None = None
) -> Partitioning | None:
    """Return the partition fields of files, except always-null fields; None if tasks cannot evaluate them all.

    :param types: Spark SQL types of the columns that tasks have; columns of other types than the table's are not used.
    :param sources: the tasks' names of these columns.
    :param spec_id: partition spec of the files; default: the current.
    """
    there = spark_types(table)
    same = {name: kind for name, kind in types.items() if name in there and _alike(kind, there[name])}
    usable = {name: source for name, source in sources.items() if name in same}
    spec_id = current_spec_id(table) if spec_id is None else spec_id
    return find_partitioning(partition_expressions(table, spec_id), same, usable)


def _alike(one: str, other: str) -> bool:
    """Check whether the values of two types have the same partitions."""
    return one == other or (one in INTEGER_BYTES and other in INTEGER_BYTES)


def count_of(partitioning: Partitioning) -> int | None:
    """Return the maximum number of partitions; None if it depends on the values."""
    if any(one.transform.kind != "bucket" for one in partitioning):
        return None
    return prod(one.transform.width for one in partitioning)


def columns_of(partitioning: Partitioning) -> list[str]:
    """Return the names of the columns that :func:`with_partitions` adds, ``p0`` and so on."""
    return [f"p{place}" for place in range(len(partitioning))]


def with_partitions(table: pa.Table, partitioning: Partitioning) -> pa.Table:
    """Add the partition values of each row to a table."""
    for name, one in zip(columns_of(partitioning), partitioning, strict=True):
        table = table.append_column(name, one.transform.values(table[one.source].combine_chunks()))
    return table


def in_order(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Group the rows by partition, keeping their order; ``names`` are columns of partition values."""
    edges = len(_edges(table, names))
    if edges <= 2 or edges - 1 == table.group_by(names).aggregate([]).num_rows:
        return table
    return table.take(pc.sort_indices(table, [(name, "ascending") for name in names]))


def by_partition(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Values, pa.Table]]:
    """Yield the values and rows of each partition of grouped rows; ``names`` are columns of partition values."""
    for low, high in pairwise(_edges(table, names)):
        yield tuple(_value(table[name][low]) for name in names), table.slice(low, high - low)


def _edges(table: pa.Table, names: Sequence[str]) -> list[int]:
    """Return the row numbers where partitions begin, and the table's length."""
    changes = {int(edge) for name in names if table.num_rows for edge in _changes(table[name].combine_chunks())}
    return sorted({0, table.num_rows, *changes})


def _changes(column: pa.Array) -> np.ndarray[Any, Any]:
    """Return the indices of values that differ from the value before."""
    before, after = column.slice(0, len(column) - 1), column.slice(1)
    differ = pc.fill_null(pc.not_equal(before, after), False)
    if column.null_count:
        differ = pc.or_(differ, pc.xor(before.is_valid(), after.is_valid()))
    indices: np.ndarray[Any, Any] = np.flatnonzero(differ.to_numpy(zero_copy_only=False)) + 1
    return indices


def _value(scalar: pa.Scalar) -> str | int | bool | None:
    """Convert a partition value to Iceberg's JSON (table specification, "JSON single-value serialization")."""
    kind = scalar.type
    if scalar.is_valid and pa.types.is_date(kind):
        return _iso(scalar.value, "D")
    if scalar.is_valid and pa.types.is_timestamp(kind):
        return f"{_iso(scalar.value, 'us')}{'+00:00' if kind.tz else ''}"
    value = scalar.as_py()
    if isinstance(value, bytes):
        return value.hex()
    plain: str | int | bool | None = format(value, "f") if isinstance(value, Decimal) else value
    return plain


def _iso(number: int, unit: Literal["D", "us"]) -> str:
    """Format days or microseconds since 1970 like Java; Python's dates end too early."""
    text = str(np.datetime64(number, unit))
    end = text.index("-", 1)
    year = int(text[:end])
    return f"{year:{'+' if year > 9999 else '04' if year >= 0 else '05'}d}{text[end:]}"
