"""Plan of the work at one snapshot, in groups that can be committed one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakecdc.contract.errors import UnsupportedError, VerificationError
from lakecdc.contract.rewriting import RewriteDeleteFilesOptions
from lakecdc.iceberg.file_io import new_folder, reaches
from lakecdc.iceberg.file_tasks import FileTask, planned_tasks
from lakecdc.iceberg.live_deletes import EqualityDelete, PositionDelete, Scopes, live_deletes
from lakecdc.iceberg.pairs import pairs_with
from lakecdc.iceberg.scan import unreadable_types
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.maintain.delete_files.leftovers import Choice, Leftover, choose
from lakecdc.maintain.delete_files.survey import PositionSurvey, has_no_equality_deletes, survey
from lakecdc.maintain.selection import cut

#: data files per commit; a scope is never split, so one large scope may exceed it
GROUP_DATA_FILES = 1000


@dataclass(frozen=True)
class Group:
    """Whole scopes that are converted in one commit.

    An equality delete may be removed only when every data file it applies to has been processed, so the smallest unit
    is its scope: the partition of its spec, or the whole table if one of them is global. The same holds for position
    deletes of a whole partition.

    :param deletes: every equality delete of these scopes, including those that apply to nothing.
    :param positions: position deletes of these scopes to remove.
    :param tasks: every data file that one of them applies to.
    :param rowless: equality deletes without rows, of any scope, that are removed in the same commit.
    """

    deletes: tuple[EqualityDelete, ...]
    positions: tuple[PositionDelete, ...]
    tasks: tuple[FileTask, ...]
    scopes: int = 1
    rowless: tuple[EqualityDelete, ...] = ()

    @property
    def delete_records(self) -> int:
        return sum(delete.records for delete in self.deletes)

    @property
    def data_records(self) -> int:
        return sum(task.records for task in self.tasks)

    @property
    def pairs(self) -> int:
        """Return the number of pairs of a data file and an equality delete that applies to it."""
        return sum(task.equality_deletes for task in self.tasks)


@dataclass(frozen=True)
class Plan:
    """The work at one snapshot: groups with most deletes per row to read first, and what stays."""

    start: Snapshot
    positions: PositionSurvey = PositionSurvey()
    groups: tuple[Group, ...] = ()
    leftovers: tuple[Leftover, ...] = ()

    @property
    def deletes(self) -> list[EqualityDelete]:
        return [delete for group in self.groups for delete in (*group.deletes, *group.rowless)]

    @property
    def equality_delete_files(self) -> int:
        """Return the number of equality-delete files, including those that stay."""
        return len(self.deletes) + sum(leftover.equality_delete_files for leftover in self.leftovers)

    @property
    def scopes(self) -> int:
        return sum(group.scopes for group in self.groups)


def has_none(start: Snapshot) -> bool:
    """Check by the snapshot summary whether there are no delete files; a missing total proves nothing."""
    return start.summary.get("total-delete-files") == "0"


def plan(
    table: IcebergTable, start: Snapshot, options: RewriteDeleteFilesOptions, group_data_files: int = GROUP_DATA_FILES
) -> Plan:
    """Find the deletes of a snapshot to rewrite, and all data files they apply to."""
    surveyed = survey(table, start, options.min_input_files, merge=options.position_deletes == "merge")
    if has_no_equality_deletes(start) and not surveyed.obsolete and not surveyed.equality_without_rows:
        return Plan(start)
    scopes = Scopes(table)
    deletes, positions = live_deletes(table, start.id, scopes, surveyed.obsolete)
    if not deletes and not positions:
        return Plan(start)
    tasks = list(planned_tasks(table, start.id, deletes, positions, scopes))
    choice = choose(table, start.id, deletes, positions, tasks)
    units = sorted(_units(choice.deletes, choice.positions, choice.tasks), key=_worth, reverse=True)
    check_complete(table, units, choice)
    if choice.rowless or choice.rowless_positions:
        units.insert(0, Group((), tuple(choice.rowless_positions), (), 0, tuple(choice.rowless)))
    groups = tuple(map(_merged, cut(units, group_data_files, lambda unit: len(unit.tasks))))
    return Plan(start, surveyed, groups, choice.leftovers)


def check_complete(table: IcebergTable, units: Sequence[Group], choice: Choice) -> None:
    """Prove that no delete is removed without every file that Iceberg's planning pairs it with.

    The proof before the commit covers a group's files; this one ensures that no file is missing from them. Iceberg
    pairs no data file with deletes of another scope, and each scope is in one unit as a whole.

    :raises VerificationError: a delete or a file is in no unit or in two, or a pair is separated.
    """
    scopes = [{d.scope for d in unit.deletes} | {t.scope for t in unit.tasks} for unit in units]
    whole = (
        sorted(d.location for unit in units for d in unit.deletes) == sorted(d.location for d in choice.deletes)
        and sorted(task.number for unit in units for task in unit.tasks) == sorted(t.number for t in choice.tasks)
        and sum(map(len, scopes)) == len(set[int | None]().union(*scopes))
        and (len(units) < 2 or not any(None in of_unit for of_unit in scopes))
        and not any(task.astray for task in choice.tasks)
        and not pairs_with(table, choice.deletes, choice.others)
    )
    if not whole:
        raise VerificationError(
            "The plan separates equality deletes from data files they apply to.",
            table=table.name,
            hint="Nothing was changed. Please report this.",
        )


def refuse_table(table: IcebergTable) -> None:
    """Refuse a table whose delete files cannot be rewritten with certainty."""
    if table.format_version > 3:
        raise UnsupportedError(f"The format version {table.format_version} is not supported.", table=table.name)
    if table.is_encrypted:
        raise UnsupportedError("Its files are encrypted; delete files are written unencrypted.", table=table.name)
    folder = new_folder(table, "deletes")
    if not reaches(folder):
        raise UnsupportedError(
            f"Its new files would go below {folder}, and tasks cannot write to paths with '#' or '?'.", table=table.name
        )
    for name, kind in unreadable_types(table).items():
        raise UnsupportedError(f"The column {name!r} has the type {kind}, which Spark cannot read.", table=table.name)


def _units(
    deletes: Sequence[EqualityDelete], positions: Sequence[PositionDelete], tasks: Sequence[FileTask]
) -> Iterator[Group]:
    if any(delete.scope is None for delete in deletes):
        yield Group(tuple(deletes), tuple(positions), tuple(tasks))
        return
    by_scope = _by_scope(deletes), _by_scope(positions), _by_scope(tasks)
    for scope in dict.fromkeys(scope for parts in by_scope for scope in parts):
        of_scope = [parts.get(scope, []) for parts in by_scope]
        yield Group(tuple(of_scope[0]), tuple(of_scope[1]), tuple(of_scope[2]))


def _by_scope(items: Sequence[Any]) -> dict[int, list[Any]]:
    scopes: dict[int, list[Any]] = {}
    for item in items:
        scopes.setdefault(item.scope, []).append(item)
    return scopes


def _worth(unit: Group) -> float:
    """Return the deletes removed per row read; dangling deletes cost nothing and come first."""
    # a delete file costs every reader a request, weighted like a hundred keys
    gain = unit.delete_records + 100 * len(unit.positions)
    return gain / max(unit.data_records, 1)


def _merged(units: list[Group]) -> Group:
    return Group(
        tuple(delete for unit in units for delete in unit.deletes),
        tuple(delete for unit in units for delete in unit.positions),
        tuple(task for unit in units for task in unit.tasks),
        sum(unit.scopes for unit in units),
        tuple(delete for unit in units for delete in unit.rowless),
    )
