"""Pairs of data files and deletes in a plan, and plans without some deletes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakecdc.iceberg.file_tasks import FileTask
from lakecdc.iceberg.live_deletes import EqualityDelete, PositionDelete, delete_file_set
from lakecdc.iceberg.table import IcebergTable


def pairs_with(
    table: IcebergTable, deletes: Sequence[EqualityDelete | PositionDelete], tasks: Sequence[FileTask]
) -> frozenset[int]:
    """Return the numbers of the data files that one of the deletes applies to.

    For files without stored pairs, scopes and sequence numbers decide, possibly including too many.
    """
    delete_set, newest = delete_file_set(table, deletes), dict[int | None, int]()
    for delete in deletes:
        if isinstance(delete, EqualityDelete):
            newest[delete.scope] = max(newest.get(delete.scope, 0), delete.sequence_number)
    everywhere = newest.get(None, 0)
    paired, others = [task for task in tasks if task.paired], [task for task in tasks if not task.paired]
    older = {t.number for t in others if t.sequence_number < max(newest.get(t.scope, 0), everywhere)}
    numbers = [part[0].store.reached(delete_set, part) for part in (paired, others) if part]
    return frozenset(older.union(*numbers))


def planned_without(
    table: IcebergTable, tasks: Sequence[FileTask], deletes: Sequence[EqualityDelete]
) -> list[FileTask]:
    """Return the same data files, planned as if these equality deletes did not apply to them."""
    if not tasks or not deletes:
        return list(tasks)
    left = tasks[0].store.without(delete_file_set(table, deletes))
    counts = left.equality_deletes(task.number for task in tasks if task.paired)
    return [replace(t, store=left, equality_deletes=next(counts) if t.paired else t.equality_deletes) for t in tasks]
