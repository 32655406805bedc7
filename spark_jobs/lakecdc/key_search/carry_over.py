"""Carry over deletes that arrive while data files are rewritten to the files that replace them.

A rewrite conflicts with each position delete on a file that it replaces, and ingestion may add some with each batch. So
the deleted rows are found in the new files by their keys, and deleted by the commit that adds these files. A proof
shows that the rows deleted in the new files have the same keys as those in the old files, each once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.bulk import java_calls
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.file_io import folder_of_work, reaches, storage_properties
from lakecdc.iceberg.file_tasks import position_deletes_of
from lakecdc.iceberg.jvm import java_list
from lakecdc.iceberg.rewrite_tasks import StagedFile, plan_tasks, removable_deletes, staged_file
from lakecdc.iceberg.staging import WrittenDeletes, delete_file
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.key_search.keys import key_columns, sent_keys, stored_in
from lakecdc.key_search.row_ids import same_rows
from lakecdc.key_search.tasks import (
    DELETED,
    FILE,
    HITS,
    DeletedKeysTask,
    Lookup,
    SearchTask,
    packed,
    unpacked,
)
from lakecdc.local_relation import spread
from lakecdc.metadata.readers import NEWEST_VERSION
from lakecdc.reader.data_files import DELETES
from lakecdc.reader.projection import ReadColumn, UnreadError
from lakecdc.writer.deletes import Target, collect_results, writer_of

_AGAIN = "Nothing was published; run again."
_INPUT = f"location string, earlier {DELETES}, deletes {DELETES}"


@dataclass(frozen=True)
class CarriedOver:
    """Deletes for the new files.

    :param since: the snapshot up to which the deletes are complete.
    :param added: Java ``DeleteFile`` objects of the new files.
    :param removed: Java ``DeleteFile`` objects of the old files.
    """

    since: Snapshot
    added: Sequence[Any]
    removed: Sequence[Any]
    rows: int


def identifying_columns(table: IcebergTable) -> tuple[ReadColumn, ...]:
    """Return the columns that identify rows; empty if rows cannot be found again."""
    if table.format_version > NEWEST_VERSION:
        return ()
    try:
        return key_columns(table, [table.field_id(name) for name in table.identifier_columns])
    except UnreadError:
        return ()


def carry_over(table: IcebergTable, head: Snapshot, tasks: Sequence[Any], outputs: Sequence[Any]) -> CarriedOver:
    """Find the rows of new files that others deleted in the old files since these were read.

    :param head: the last snapshot with deletes to carry over.
    :param tasks: scan tasks of the old files, as they were read.
    :param outputs: Java ``DataFile`` objects of the new files, not committed.
    :raises ConflictError: an old file was removed, or its rows cannot be found again with certainty.
    """
    by_location = {str(task.file().location()): task for task in tasks}
    now = plan_tasks(table, head.id, by_location)
    if now.keys() != by_location.keys():
        raise ConflictError("Another writer removed a data file of the rewrite.", table=table.name, hint=_AGAIN)
    calls, order = java_calls(table.spark), list(by_location)
    states = [
        position_deletes_of(calls, java_list(table.spark, [of_state[name] for name in order]))
        for of_state in (by_location, now)
    ]
    changed: list[Sequence[Any]] = []
    for location, earlier, deletes in zip(order, *states, strict=True):
        if {delete.key for delete in earlier} != {delete.key for delete in deletes}:
            changed.append((location, earlier, deletes))
    removed = removable_deletes(table, now.values())
    if not changed:
        return CarriedOver(head, (), removed, 0)
    _refuse_unknown(table, by_location, changed)
    changed = [(name, *([one.for_tasks for one in deletes] for deletes in both)) for name, *both in changed]
    with folder_of_work(table, "deletes") as folder:
        return _carried(table, head, changed, outputs, removed, folder)


def _carried(
    table: IcebergTable,
    head: Snapshot,
    changed: Sequence[Sequence[Any]],
    outputs: Sequence[Any],
    removed: Sequence[Any],
    folder: str,
) -> CarriedOver:
    deleted_keys, rows = _deleted_keys(table, changed)
    if not rows:
        return CarriedOver(head, (), removed, 0)
    files = dict(enumerate(outputs))
    written = _search(table, folder, deleted_keys, {number: staged_file(file) for number, file in files.items()})
    added = [delete_file(table, files[one.file_number], one) for one in written]
    again: list[Sequence[Any]] = [(staged_file(files[one.file_number]).location, [], [_place(one)]) for one in written]
    hit_keys, hits = _deleted_keys(table, again)
    if not (rows == hits == deleted_keys.num_rows == hit_keys.num_rows and same_rows([deleted_keys], [hit_keys])):
        raise ConflictError(
            f"{rows} rows were deleted during the rewrite, and {hits} rows of the new files have their keys.",
            table=table.name,
            hint=_AGAIN,
        )
    if not removed:
        # Iceberg refuses a rewrite that adds delete files and removes none
        raise ConflictError("Its position deletes apply to whole partitions.", table=table.name, hint=_AGAIN)
    return CarriedOver(head, added, removed, rows)


def _refuse_unknown(table: IcebergTable, tasks: Mapping[str, Any], changed: Sequence[Sequence[Any]]) -> None:
    """Refuse files if tasks cannot find the rows deleted since the read.

    :param changed: location, position deletes as the files were read, and now.
    """
    for location, earlier, deletes in changed:
        if int(tasks[location].deletes().size()) > len(earlier):
            # a conversion deletes by position rows that the read had already left out
            why = "rows of its data files had equality deletes, which may have been converted"
        elif not all(reaches(place) for place in (location, *(delete.location for delete in deletes))):
            why = "tasks cannot read a path with '#' or '?'"
        else:
            continue
        raise ConflictError(f"Another writer deleted rows during the rewrite: {why}.", table=table.name, hint=_AGAIN)


def _deleted_keys(table: IcebergTable, files: Sequence[Sequence[Any]]) -> tuple[pa.Table, int]:
    """Return the distinct keys of deleted rows and the number of these rows."""
    columns = identifying_columns(table)
    task = DeletedKeysTask(columns, storage_properties(table))
    results = run_tasks(spread(table.spark, files, _INPUT), task, DELETED).collect()
    if any(row["unread"] for row in results):
        raise ConflictError("Tasks cannot read the keys of its data files.", table=table.name, hint=_AGAIN)
    whole = unpacked(packed([unpacked(row["keys"]) for row in results], columns))
    return whole, sum(row["rows"] for row in results)


def _search(table: IcebergTable, folder: str, keys: pa.Table, files: Mapping[int, StagedFile]) -> list[WrittenDeletes]:
    columns = identifying_columns(table)
    target = Target(folder, storage_properties(table), {number: file.location for number, file in files.items()})
    with ExitStack() as stack:
        lookup = Lookup(columns, (sent_keys(table, stack, packed([keys], columns)),))
        task = SearchTask((lookup,), stored_in(table), target, writer_of(table))
        rows: list[Sequence[Any]] = [
            (number, file.location, 0, 0, None, file.rows, [], None, None) for number, file in files.items()
        ]
        results = run_tasks(spread(table.spark, rows, FILE), task, HITS).collect()
        return collect_results(results)[0]


def _place(one: WrittenDeletes) -> dict[str, Any]:
    kind = "PARQUET" if one.offset is None else "PUFFIN"
    return {"location": one.location, "format": kind, "offset": one.offset, "length": one.length}
