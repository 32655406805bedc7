"""Which of a plan's data files chosen deletes apply to, and the same files as if others did not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecdc.iceberg.jvm import jvm
from lakecdc.iceberg.live_deletes import EqualityDelete, delete_file_set
from lakecdc.iceberg.scan import FileTask, TaskBuilder

if TYPE_CHECKING:
    from lakecdc.iceberg.live_deletes import PositionDelete
    from lakecdc.iceberg.table import IcebergTable


def pairs_with(table: IcebergTable, deletes: Iterable[EqualityDelete | PositionDelete]) -> Callable[[FileTask], bool]:
    """Tell of data files whether one of the deletes applies to them.

    Of files whose plan is not kept the scopes and sequence numbers tell it, maybe of too many.
    """
    listed, disjoint = list(deletes), jvm(table.spark).java.util.Collections.disjoint
    wanted, newest = delete_file_set(table, listed), dict[int | None, int]()
    for delete in listed:
        if isinstance(delete, EqualityDelete):
            newest[delete.scope] = max(newest.get(delete.scope, 0), delete.sequence_number)

    def applies(task: FileTask) -> bool:
        if task.planned is not None:
            return not disjoint(wanted, task.planned.deletes())
        older = task.sequence_number < max(newest.get(task.scope, 0), newest.get(None, 0))
        return older or not disjoint(wanted, task.others)

    return applies


def planned_without(
    table: IcebergTable, tasks: Iterable[FileTask], deletes: Iterable[EqualityDelete]
) -> list[FileTask]:
    """The same data files, planned as if these equality deletes did not apply to them."""
    view, builder, unwanted = jvm(table.spark), TaskBuilder(table), delete_file_set(table, deletes)
    found = []
    for task in tasks:
        if task.planned is not None and not view.java.util.Collections.disjoint(unwanted, task.planned.deletes()):
            left = view.java.util.ArrayList(task.planned.deletes())
            left.removeAll(unwanted)
            equality_deletes = left.size() - task.others.size()
            task = replace(task, planned=builder.task(task.java, left), equality_deletes=equality_deletes)
        found.append(task)
    return found
