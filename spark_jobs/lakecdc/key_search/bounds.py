"""Data files that none of some keys can be in, by the bounds of the key's columns in the table's metadata.

Planning compares the lowest and highest key of a batch. Keys at both ends of a table, or spread thinly over it, leave
files between them, which tasks need not open.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakecdc.iceberg.file_bounds import READ, file_bounds

if TYPE_CHECKING:
    from lakecdc.iceberg.file_tasks import FileTask
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.reader.projection import ReadColumn


def within_bounds(
    table: IcebergTable, tasks: Sequence[FileTask], columns: Sequence[ReadColumn], keys: pa.Table
) -> set[int]:
    """Return the numbers of the data files that one of the keys may be in.

    :param tasks: of one plan.
    :param keys: with the columns ``d0`` … in the order of ``columns``.
    """
    fields, left = {field.id: field for field in table.fields}, list(tasks)
    for place, column in enumerate(columns):
        values = ordered(keys[f"d{place}"]) if column.type in READ else None
        if left and values is not None:
            bounds = file_bounds(table, left, fields[column.id])
            left = [task for task, ends in zip(left, bounds, strict=True) if may_hold(ends, values)]
    return {task.number for task in left}


def ordered(values: pa.ChunkedArray) -> list[Any] | None:
    """Return values in ascending order, dates as days since 1970; None if one is null, as bounds do not cover nulls."""
    if values.null_count:
        return None
    return sorted((values.cast(pa.int32()) if pa.types.is_date(values.type) else values).to_pylist())


def may_hold(bounds: tuple[Any, Any] | None, values: Sequence[Any]) -> bool:
    """Check whether one of some ascending values lies within bounds; unknown bounds hold everything."""
    if bounds is None:
        return True
    place = bisect_left(values, bounds[0])
    return place < len(values) and bool(values[place] <= bounds[1])
