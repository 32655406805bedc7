"""What has to be done at one snapshot, in groups that can be committed one by one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.contract.errors import UnsupportedError, VerificationError
from lakecdc.iceberg.scan import (
    EqualityDelete,
    FileTask,
    Scopes,
    equality_deletes,
    field_types,
    only_deletes_of,
    tasks_reached,
)

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable, Snapshot

#: data files per commit; a scope is never split, so one large scope may pass it
GROUP_DATA_FILES = 1000
_PRIMITIVE = re.compile(r"^(?!struct|list|map|variant|geometry|geography)")
_FLOATING = ("float", "double")


@dataclass(frozen=True)
class Group:
    """Whole scopes that are converted in one commit.

    An equality delete may go only when every data file it reaches has been processed, so that the smallest unit is
    its scope: the partition of its spec, or the whole table if one of them is global.

    :param deletes: every equality delete of these scopes, those that apply to nothing included.
    :param tasks: every data file that one of them applies to.
    :param scopes: how many scopes these are.
    """

    deletes: tuple[EqualityDelete, ...]
    tasks: tuple[FileTask, ...]
    scopes: int = 1

    @property
    def delete_records(self) -> int:
        """Rows in the group's equality-delete files."""
        return sum(delete.records for delete in self.deletes)

    @property
    def data_records(self) -> int:
        """Rows in the data files that the group's deletes apply to."""
        return sum(task.records for task in self.tasks)


@dataclass(frozen=True)
class Plan:
    """The work at one snapshot.

    :param start: the snapshot.
    :param groups: in the order of processing: most deletes per row to be read first.
    """

    start: Snapshot
    groups: tuple[Group, ...]

    @property
    def deletes(self) -> list[EqualityDelete]:
        """All equality deletes of the plan."""
        return [delete for group in self.groups for delete in group.deletes]

    @property
    def scopes(self) -> int:
        """Scopes that hold equality deletes."""
        return sum(group.scopes for group in self.groups)


def has_none(start: Snapshot) -> bool:
    """Tell from the snapshot summary alone that there are no equality deletes; a missing total proves nothing."""
    return start.summary.get("total-equality-deletes") == "0"


def plan(table: IcebergTable, start: Snapshot, group_data_files: int = GROUP_DATA_FILES) -> Plan:
    """Find the equality deletes of a snapshot and the data files they apply to.

    :param start: snapshot to work on.
    :param group_data_files: data files per group aimed at.
    :raises UnsupportedError: keys that cannot be matched safely, a newer format version, encrypted files.
    """
    scopes = Scopes(table)
    deletes = equality_deletes(table, start.id, scopes)
    if not deletes:
        return Plan(start, ())
    refuse_unsupported(table, deletes)
    tasks = list(tasks_reached(table, start.id, deletes, scopes))
    units = sorted(_units(deletes, tasks), key=_worth, reverse=True)
    check_complete(table, units, deletes, tasks)
    return Plan(start, tuple(_pack(units, group_data_files)))


def check_complete(
    table: IcebergTable, units: Sequence[Group], deletes: Sequence[EqualityDelete], tasks: Sequence[FileTask]
) -> None:
    """Prove that no delete goes without every file that Iceberg's own planning pairs it with.

    The proof before the commit looks at a group's files; this one sees to it that no file is missing from them.

    :raises VerificationError: a delete or a file is in no unit or in two, or a pair is torn apart.
    """
    whole = (
        sum(len(unit.deletes) for unit in units) == len(deletes)
        and sum(len(unit.tasks) for unit in units) == len(tasks)
        and all(only_deletes_of(table, unit.tasks, unit.deletes) for unit in units)
    )
    if not whole:
        raise VerificationError(
            "The plan tears equality deletes from data files they apply to.",
            table=table.name,
            hint="Nothing was changed. Please report this.",
        )


def refuse_unsupported(table: IcebergTable, deletes: Iterable[EqualityDelete]) -> None:
    """Refuse what cannot be converted with certainty.

    :raises UnsupportedError: naming the reason.
    """
    if table.format_version > 3:
        raise UnsupportedError(f"The table has format version {table.format_version}.", table=table.name)
    if table.is_encrypted:
        raise UnsupportedError("Its files are encrypted; delete files are written unencrypted.", table=table.name)
    for field_id, kind in field_types(table, {i for delete in deletes for i in delete.field_ids}).items():
        if kind is None or not _PRIMITIVE.match(kind):
            what = "is nested or not a top-level column" if kind is None else f"has the type {kind}"
            raise UnsupportedError(
                f"The equality-delete key with field id {field_id} {what}; Iceberg's readers cannot apply it.",
                table=table.name,
            )
        if kind in _FLOATING:
            raise UnsupportedError(
                f"The equality-delete key with field id {field_id} has the type {kind}, and engines disagree on "
                "when two of those are equal.",
                table=table.name,
                hint="Rewrite the data files instead (compact_data_files), and choose another key.",
            )


def _units(deletes: list[EqualityDelete], tasks: list[FileTask]) -> Iterator[Group]:
    if any(delete.scope is None for delete in deletes):
        yield Group(tuple(deletes), tuple(tasks))
        return
    for scope in sorted({delete.scope for delete in deletes if delete.scope is not None}):
        of_scope = tuple(delete for delete in deletes if delete.scope == scope)
        yield Group(of_scope, tuple(task for task in tasks if task.scope == scope))


def _worth(unit: Group) -> float:
    """Deletes got rid of per row read; dangling deletes cost nothing and come first."""
    return unit.delete_records / max(unit.data_records, 1)


def _pack(units: Iterable[Group], data_files: int) -> Iterator[Group]:
    waiting: list[Group] = []
    for unit in units:
        if waiting and sum(len(group.tasks) for group in waiting) + len(unit.tasks) > data_files:
            yield _merged(waiting)
            waiting = []
        waiting.append(unit)
    if waiting:
        yield _merged(waiting)


def _merged(units: list[Group]) -> Group:
    return Group(
        tuple(delete for unit in units for delete in unit.deletes),
        tuple(task for unit in units for task in unit.tasks),
        len(units),
    )
