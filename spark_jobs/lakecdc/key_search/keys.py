"""Read keys from delete files, send them to tasks, and compare them with the bounds of data files."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.file_bounds import READ, file_bounds
from lakecdc.iceberg.file_io import reaches, storage_properties
from lakecdc.iceberg.file_tasks import FileTask, others_of
from lakecdc.iceberg.live_deletes import DeleteKey, EqualityDelete
from lakecdc.iceberg.partition_fields import identity_columns
from lakecdc.iceberg.scan import columns_ever
from lakecdc.iceberg.table import IcebergTable
from lakecdc.key_search.tasks import DELETE_FILE, KEYS, KeysTask, Stored, unpacked, without
from lakecdc.local_relation import spread
from lakecdc.metadata.debt import doubt
from lakecdc.model.iceberg_columns import UnknownTypeError
from lakecdc.reader.projection import ReadColumn, UnreadError, read_columns

#: maximum number of keys in a task's memory
MOST_KEYS = 1_000_000
_NAME_MAPPING = "schema.name-mapping.default"
Range = tuple[EqualityDelete, int, int | None]
#: a data file's location, and the position deletes and vectors that apply to it; the same state has the same hits
FileState = tuple[str, frozenset[DeleteKey]]


@dataclass(frozen=True)
class Seen:
    """Hits of an earlier search in some data files.

    :param keys: the keys searched for: ``d0`` …
    :param rows: ``d0`` …, ``row_id``, ``position`` and ``file`` of the hits.
    :param files: numbers of the data files.
    """

    keys: pa.Table
    rows: pa.Table
    files: frozenset[int]


def states_of(tasks: Sequence[FileTask]) -> dict[int, FileState]:
    """Return the state of each data file, by its number."""
    others = others_of(tasks)
    return {t.number: (t.location, frozenset(one.key for one in others.get(t.number, ()))) for t in tasks}


def stored_in(table: IcebergTable, columns: Collection[str] = ()) -> Stored:
    """Return how a table's columns are stored.

    :param columns: to read from the hits.
    """
    mapping = table.properties.get(_NAME_MAPPING)
    return Stored(
        storage_properties(table),
        json.loads(mapping) if mapping else None,
        identity_columns(table),
        tuple(column for column in read_columns(table.schema_fields) if column.name in columns),
    )


def key_columns(table: IcebergTable, field_ids: Sequence[int]) -> tuple[ReadColumn, ...]:
    """Return the columns of a key, including columns dropped from the table.

    :raises UnreadError: tasks cannot compare their values as Iceberg does.
    """
    known = columns_ever(table, field_ids)
    columns = read_columns(known[field_id] for field_id in field_ids if field_id in known)
    for column in columns:
        try:
            column.field()
        except UnknownTypeError as error:
            raise UnreadError(f"the key column {column.name} is {error}") from error
        if column.is_nested or doubt(column.type):
            raise UnreadError(f"the key column {column.name} is {column.type}")
    if len(columns) < len(field_ids):
        raise UnreadError("a key column is not a top-level column")
    return columns


def sent_keys(table: IcebergTable, stack: ExitStack, keys: bytes) -> Any:
    """Send keys to tasks, as long as the stack is open; see :func:`packed`."""
    broadcast = table.spark.sparkContext.broadcast(keys)
    stack.callback(broadcast.destroy)
    return broadcast


def key_ranges(deletes: Iterable[EqualityDelete], most: int) -> Iterator[list[Range]]:
    """Cut deletes into parts of limited keys: delete files, each with its first row and the row after its last.

    The last range of a file is open, because only the file itself has its exact number of rows.
    """
    part, size = list[Range](), 0
    for delete in deletes:
        begin = 0
        while begin + most - size < delete.records:
            if size < most:
                part.append((delete, begin, begin + most - size))
            yield part
            begin, part, size = begin + most - size, [], 0
        part.append((delete, begin, None))
        size += delete.records - begin
    if part:
        yield part


def deleted_keys(
    table: IcebergTable,
    columns: tuple[ReadColumn, ...],
    ranges: Sequence[Range],
    among: Any = None,
) -> tuple[list[pa.Table], dict[str, str]]:
    """Read keys of equality-delete files of one key.

    :param ranges: see :func:`key_ranges`.
    :param among: a broadcast of the packed keys to return; default: all.
    :return: tables as of :func:`lakecdc.key_search.tasks.read_keys`; and why tasks cannot know the keys of delete
        files, by location.
    """
    unread = {d.location: "tasks cannot read a path with '#' or '?'" for d, *_ in ranges if not reaches(d.location)}
    near = [
        (number, d.location, d.scope, d.sequence_number, begin, end)
        for number, (d, begin, end) in enumerate(ranges)
        if d.location not in unread
    ]
    keys = []
    if near:
        task = KeysTask(columns, storage_properties(table), among)
        for row in run_tasks(spread(table.spark, near, DELETE_FILE), task, KEYS).collect():
            keys.append(unpacked(row["keys"]))
            unread |= {ranges[number][0].location: why for number, why in row["unread"].items()}
    return keys, unread


def near_files(
    table: IcebergTable,
    tasks: Sequence[FileTask],
    columns: Sequence[ReadColumn],
    keys: pa.Table,
    seen: Seen | None = None,
) -> set[int]:
    """Return the numbers of the data files that may contain some keys and must be read."""
    if seen is None:
        return within_bounds(table, tasks, columns, keys)
    others, rest = [task for task in tasks if task.number in seen.files], without(keys, seen.keys)
    near = within_bounds(table, [task for task in tasks if task.number not in seen.files], columns, keys)
    return near | within_bounds(table, others, columns, rest) if others and rest.num_rows else near


def within_bounds(
    table: IcebergTable, tasks: Sequence[FileTask], columns: Sequence[ReadColumn], keys: pa.Table
) -> set[int]:
    """Return the numbers of the data files whose bounds admit one of the keys.

    :param tasks: of one plan.
    :param keys: with the columns ``d0`` … in the order of ``columns``.
    """
    fields, left = {field.id: field for field in table.fields}, list(tasks)
    for place, column in enumerate(columns):
        values = ordered(keys[f"d{place}"]) if column.type in READ and column.id in fields else None
        if left and values is not None:
            bounds = file_bounds(table, left, fields[column.id])
            left = [task for task, ends in zip(left, bounds, strict=True) if may_hold(ends, values)]
    return {task.number for task in left}


def ordered(values: pa.ChunkedArray) -> list[Any] | None:
    """Return values in ascending order, dates as days since 1970; None if one is null: bounds do not cover nulls."""
    if values.null_count:
        return None
    return sorted((values.cast(pa.int32()) if pa.types.is_date(values.type) else values).to_pylist())


def may_hold(bounds: tuple[Any, Any] | None, values: Sequence[Any]) -> bool:
    """Check whether one of some ascending values lies within bounds; unknown bounds admit every value."""
    if bounds is None:
        return True
    place = bisect_left(values, bounds[0])
    return place < len(values) and bool(values[place] <= bounds[1])
