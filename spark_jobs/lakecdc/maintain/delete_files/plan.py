"""Plan the work at one snapshot, in groups that can be committed one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import VerificationError
from lakecdc.contract.rewriting import RewriteDeleteFilesOptions
from lakecdc.iceberg.file_tasks import FileTask, others_of, pairs_with, planned_tasks
from lakecdc.iceberg.live_deletes import (
    DeleteKey,
    EqualityDelete,
    PositionDelete,
    Scopes,
    has_no_equality_deletes,
    live_deletes,
)
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.key_search.match import KeySearch
from lakecdc.maintain.delete_files.leftovers import Choice, Leftover, choose
from lakecdc.maintain.measure import referenced_file
from lakecdc.metadata.file_sizes import cut
from lakecdc.metadata.locations import ABSOLUTE

#: maximum number of data files per commit; a scope is never split, so a large scope may exceed it
GROUP_DATA_FILES = 1000


@dataclass(frozen=True)
class PositionSurvey:
    """Position deletes of a snapshot that should be removed.

    :param merge: position-delete files to rewrite: several files of one data file, files of a whole partition, and in
        format v3 all that are not deletion vectors.
    :param dangling: position-delete files and deletion vectors that apply to no live data file.
    :param rowless: position-delete files and deletion vectors that delete nothing.
    :param equality_without_rows: whether some equality deletes delete nothing; checked only if the summary shows that
        there are no others.
    """

    merge: frozenset[DeleteKey] = frozenset()
    dangling: frozenset[DeleteKey] = frozenset()
    rowless: frozenset[DeleteKey] = frozenset()
    equality_without_rows: bool = False

    @property
    def obsolete(self) -> frozenset[DeleteKey]:
        return self.merge | self.dangling | self.rowless


def survey(table: IcebergTable, snapshot: Snapshot, min_input_files: int, *, merge: bool = True) -> PositionSurvey:
    """Survey the live position deletes of a snapshot from its metadata, unless the summary shows that there are none.

    :param min_input_files: number of position-delete files of one data file worth merging.
    :param merge: whether to remove position deletes at all.
    """
    # row totals do not reveal files without rows
    rowless_only = has_no_equality_deletes(snapshot)
    if not rowless_only and (not merge or snapshot.summary.get("total-position-deletes") == "0"):
        return PositionSurvey()
    entries = _entries(table, snapshot.id)
    equality = entries.where("content = 2").limit(1) if rowless_only else None
    if not merge:
        return PositionSurvey(equality_without_rows=equality is not None and not equality.isEmpty())
    deletes, data = entries.where("content = 1"), entries.where("content = 0")
    vectors = table.format_version >= 3
    files = data.select(
        resolved("location", table.location).alias("data_file"), F.col("sequence_number").alias("written_at")
    )
    several = (F.col("format") != "PUFFIN") & (F.lit(vectors) | (F.col("siblings") >= min_input_files))
    of_one_file = _candidates(deletes.where("data_file IS NOT NULL"), files, "data_file", several)
    per_scope = data.groupBy("scope").agg(F.min("sequence_number").alias("written_at"), F.count("*").alias("files"))
    # a single delete file of a single data file stays
    shared = F.lit(vectors) | (F.col("files") > 1) | (F.col("siblings") > 1)
    of_a_partition = _candidates(deletes.where("data_file IS NULL"), per_scope, "scope", shared)
    candidates = of_one_file.unionByName(of_a_partition)
    if equality is not None:
        candidates = candidates.unionByName(equality.select("location", "offset", F.lit("equality").alias("goes")))
    goes = candidates.where("goes IS NOT NULL").select("location", "offset", "goes").collect()
    kinds = ("merge", "dangling", "rowless", "equality")
    by = {kind: frozenset((r.location, r.offset) for r in goes if r.goes == kind) for kind in kinds}
    return PositionSurvey(by["merge"], by["dangling"], by["rowless"], bool(by["equality"]))


def _candidates(deletes: DataFrame, data: DataFrame, by: str, merge: Column) -> DataFrame:
    """Join position deletes ``by`` the files they apply to, and return why each is removed, or null."""
    siblings = deletes.groupBy(by).agg(F.count("*").alias("siblings"))
    joined = deletes.join(siblings, by).join(data, by, "left")
    applies = F.coalesce(F.col("written_at") <= F.col("sequence_number"), F.lit(False))
    goes = F.when(F.col("records") == 0, F.lit("rowless")).when(~applies, F.lit("dangling")).when(merge, F.lit("merge"))
    return joined.select("location", "offset", goes.alias("goes"))


def _entries(table: IcebergTable, snapshot_id: int) -> DataFrame:
    entries = table.metadata("entries", snapshot_id).where("status < 2")
    partitioned = "partition" in entries.select("data_file.*").columns
    scope = F.struct("data_file.spec_id", *(["data_file.partition"] if partitioned else []))
    return entries.select(
        "sequence_number",
        F.col("data_file.content").alias("content"),
        F.col("data_file.file_path").alias("location"),
        F.col("data_file.content_offset").alias("offset"),
        F.col("data_file.file_format").alias("format"),
        F.col("data_file.record_count").alias("records"),
        scope.alias("scope"),
        F.expr(referenced_file(entries.schema)).alias("data_file"),
    ).withColumn("data_file", resolved("data_file", table.location))


def resolved(column: str, root: str) -> Column:
    """Return the locations of a column as :func:`lakecdc.metadata.locations.resolve` does."""
    location = F.col(column)
    return F.when(location.rlike(ABSOLUTE), location).otherwise(F.concat(F.lit(f"{root.rstrip('/')}/"), location))


@dataclass(frozen=True)
class Group(KeySearch):
    """Whole scopes that are converted in one commit.

    An equality delete may be removed only when every data file it applies to has been processed. So the smallest unit
    is its scope: the partition of its spec, or the whole table if one of its deletes is global. The same holds for
    position deletes of a whole partition.

    :param deletes: every equality delete of these scopes, including those that apply to nothing.
    :param positions: position deletes of these scopes to remove.
    :param rowless: equality deletes without rows, of any scope, that are removed in the same commit.
    """

    positions: tuple[PositionDelete, ...] = ()
    scopes: int = 1
    rowless: tuple[EqualityDelete, ...] = ()

    @property
    def merged(self) -> frozenset[int]:
        """Return the numbers of the data files whose position deletes are merged."""
        going = {delete.key for delete in self.positions}
        applying = others_of(self.tasks) if going else {}
        return frozenset(number for number, others in applying.items() if any(other.key in going for other in others))


@dataclass(frozen=True)
class Plan:
    """The work at one snapshot: groups, most deletes per row to read first, and the deletes that stay."""

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
    """Check whether the snapshot summary shows that there are no delete files; a missing total proves nothing."""
    return start.summary.get("total-delete-files") == "0"


def plan(table: IcebergTable, start: Snapshot, options: RewriteDeleteFilesOptions) -> Plan:
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
        units.insert(0, Group((), (), tuple(choice.rowless_positions), 0, tuple(choice.rowless)))
    groups = tuple(map(_merged, cut(units, GROUP_DATA_FILES, lambda unit: len(unit.tasks))))
    return Plan(start, surveyed, groups, choice.leftovers)


def check_complete(table: IcebergTable, units: Sequence[Group], choice: Choice) -> None:
    """Prove that a delete is removed only together with every file that Iceberg's planning pairs it with.

    The proof before the commit covers a group's files; this proof ensures that none is missing. Iceberg never pairs a
    data file with deletes of another scope, and each whole scope is in one unit.

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


def _units(
    deletes: Sequence[EqualityDelete], positions: Sequence[PositionDelete], tasks: Sequence[FileTask]
) -> Iterator[Group]:
    if any(delete.scope is None for delete in deletes):
        yield Group(tuple(deletes), tuple(tasks), tuple(positions))
        return
    by_scope = _by_scope(deletes), _by_scope(positions), _by_scope(tasks)
    for scope in dict.fromkeys(scope for parts in by_scope for scope in parts):
        of_deletes, of_positions, of_tasks = (tuple(parts.get(scope, ())) for parts in by_scope)
        yield Group(of_deletes, of_tasks, of_positions)


def _by_scope(items: Sequence[Any]) -> dict[int, list[Any]]:
    scopes: dict[int, list[Any]] = {}
    for item in items:
        scopes.setdefault(item.scope, []).append(item)
    return scopes


def _worth(unit: Group) -> float:
    """Return the deletes removed per row read; dangling deletes cost nothing and come first."""
    # a delete file costs every reader a request, which weighs like a hundred keys
    gain = unit.delete_records + 100 * len(unit.positions)
    return gain / max(unit.data_records, 1)


def _merged(units: list[Group]) -> Group:
    return Group(
        tuple(delete for unit in units for delete in unit.deletes),
        tuple(task for unit in units for task in unit.tasks),
        tuple(delete for unit in units for delete in unit.positions),
        sum(unit.scopes for unit in units),
        tuple(delete for unit in units for delete in unit.rowless),
    )
