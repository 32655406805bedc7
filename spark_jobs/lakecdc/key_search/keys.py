"""Keys to look up: read from delete files, sent to tasks, and compared with the bounds of data files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakecdc.iceberg.core_time import counted
from lakecdc.iceberg.file_bounds import READ, file_bounds
from lakecdc.iceberg.file_io import reaches, storage_properties
from lakecdc.iceberg.file_tasks import FileTask, others_of
from lakecdc.iceberg.live_deletes import DeleteKey, EqualityDelete
from lakecdc.iceberg.table import IcebergTable
from lakecdc.key_search.tasks import KEYS, KeysTask, Lookup, packed, serialized, unpacked, without
from lakecdc.local_relation import dealt
from lakecdc.reader.projection import ReadColumn

_DELETE_FILE = "number int, location string, reach int, deleted_at long"
#: a data file's location, and the position deletes and vectors that apply to it: what a search has found holds for it
FileState = tuple[str, frozenset[DeleteKey]]


@dataclass(frozen=True)
class Seen:
    """What an earlier search has found in some data files.

    :param keys: that it searched for: ``d0`` …
    :param rows: ``d0`` …, ``row_id``, ``position`` and ``file`` of the rows that it found.
    :param files: numbers of the data files.
    """

    keys: pa.Table
    rows: pa.Table
    files: frozenset[int]


def states_of(tasks: Sequence[FileTask]) -> dict[int, FileState]:
    """Return the state of each data file, by its number."""
    others = others_of(tasks)
    return {t.number: (t.location, frozenset(one.key for one in others.get(t.number, ()))) for t in tasks}


def sent_lookup(
    table: IcebergTable,
    stack: ExitStack,
    columns: tuple[ReadColumn, ...],
    keys: Sequence[pa.Table],
    seen: Seen | None = None,
) -> Lookup:
    """Send keys to tasks, as long as the stack is open; see :func:`packed`."""

    def sent(content: bytes) -> Any:
        broadcast = table.spark.sparkContext.broadcast(content)
        stack.callback(broadcast.destroy)
        return broadcast

    content = packed(keys, columns)
    if seen is None:
        return Lookup(columns, sent(content))
    return Lookup(columns, sent(content), sent(serialized(without(unpacked(content), seen.keys))), seen.files)


def deleted_keys(
    table: IcebergTable,
    columns: tuple[ReadColumn, ...],
    deletes: Sequence[EqualityDelete],
    among: Lookup | None = None,
) -> tuple[list[pa.Table], list[EqualityDelete]]:
    """Read equality-delete files of one key as far as Arrow reads them with certainty.

    :param among: only these keys are wanted; default: all.
    :return: tables as of :func:`keys_of_files`; and the deletes left to Iceberg's reader: not Parquet, without field
        ids, or without a key column as the table has it.
    """
    numbered = list(enumerate(deletes))
    near = [(number, d.location, d.scope, d.sequence_number) for number, d in numbered if reaches(d.location)]
    left = {number for number, delete in numbered if not reaches(delete.location)}
    keys = []
    if near:
        task = KeysTask(columns, storage_properties(table), among)
        for row in dealt(table.spark, near, _DELETE_FILE).mapInArrow(counted(table.spark, task), KEYS).collect():
            keys.append(unpacked(row["keys"]))
            left.update(row["unread"])
    return keys, [delete for number, delete in numbered if number in left]


def near_files(table: IcebergTable, tasks: Sequence[FileTask], lookup: Lookup) -> set[int]:
    """Return the numbers of the data files that a lookup has to read."""
    seen = [task for task in tasks if task.number in lookup.seen]
    others = [task for task in tasks if task.number not in lookup.seen]
    near = within_bounds(table, others, lookup.columns, lookup.all)
    return near | within_bounds(table, seen, lookup.columns, lookup.rest) if seen and lookup.rest.num_rows else near


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
