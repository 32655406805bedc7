"""Plan the work at one snapshot, in groups that can be committed one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

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


#: why a delete file is removed. ``merge``: one of several of a data file, of a whole partition, or in format v3 not a
#: deletion vector; ``dangling``: it applies to no live data file; ``rowless``, and ``equality``: it deletes nothing
Why = Literal["merge", "dangling", "rowless", "equality"]


def survey(
    table: IcebergTable, snapshot: Snapshot, min_input_files: int, *, merge: bool = True
) -> dict[DeleteKey, Why]:
    """Return the live position deletes of a snapshot to remove, from its metadata, unless its summary shows none.

    One equality-delete file is included if the summary shows that all of them delete nothing.

    :param min_input_files: number of position-delete files of one data file worth merging.
    :param merge: whether to remove position deletes at all.
    """
    # row totals do not reveal files without rows
    rowless_only = has_no_equality_deletes(snapshot)
    if not rowless_only and (not merge or snapshot.summary.get("total-position-deletes") == "0"):
        return {}
    entries, candidates = _entries(table, snapshot.id), list[DataFrame]()
    if rowless_only:
        equality = entries.where("content = 2").limit(1)
        candidates.append(equality.select("location", "offset", F.lit("equality").alias("why")))
    if merge:
        deletes, data = entries.where("content = 1"), entries.where("content = 0")
        vectors, is_file = table.format_version >= 3, F.col("format") != "PUFFIN"
        location = resolved("location", table.location).alias("data_file")
        files = data.select(location, F.col("sequence_number").alias("written_at"))
        several = is_file & (F.lit(vectors) | (F.col("siblings") >= min_input_files))
        candidates.append(_candidates(deletes.where("data_file IS NOT NULL"), files, "data_file", several))
        per_scope = data.groupBy("scope").agg(F.min("sequence_number").alias("written_at"), F.count("*").alias("files"))
        # a single delete file of a single data file stays
        shared = F.lit(vectors) | (F.col("files") > 1) | (F.col("siblings") > 1)
        candidates.append(_candidates(deletes.where("data_file IS NULL"), per_scope, "scope", shared))
    rows = reduce(DataFrame.unionByName, candidates).where("why IS NOT NULL").collect()
    return {(row.location, row.offset): row.why for row in rows}


def _candidates(deletes: DataFrame, data: DataFrame, by: str, merge: Column) -> DataFrame:
    """Join position deletes ``by`` the files they apply to, and return why each is removed, or null."""
    siblings = deletes.groupBy(by).agg(F.count("*").alias("siblings"))
    joined = deletes.join(siblings, by).join(data, by, "left")
    applies = F.coalesce(F.col("written_at") <= F.col("sequence_number"), F.lit(False))
    why = F.when(F.col("records") == 0, F.lit("rowless")).when(~applies, F.lit("dangling")).when(merge, F.lit("merge"))
    return joined.select("location", "offset", why.alias("why"))


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
    obsolete: Mapping[DeleteKey, Why] = field(default_factory=dict)
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
    obsolete = survey(table, start, options.min_input_files, merge=options.position_deletes == "merge")
    if has_no_equality_deletes(start) and not obsolete:
        return Plan(start)
    scopes = Scopes(table)
    deletes, positions = live_deletes(table, start.id, scopes, obsolete)
    if not deletes and not positions:
        return Plan(start)
    tasks = list(planned_tasks(table, start.id, deletes, positions, scopes))
    choice = choose(table, start.id, deletes, positions, tasks)
    units = sorted(_units(choice.deletes, choice.positions, choice.tasks), key=_worth, reverse=True)
    check_complete(table, units, choice)
    if choice.rowless or choice.rowless_positions:
        units.insert(0, Group((), (), tuple(choice.rowless_positions), 0, tuple(choice.rowless)))
    groups = tuple(map(_merged, cut(units, GROUP_DATA_FILES, lambda unit: len(unit.tasks))))
    return Plan(start, obsolete, groups, choice.leftovers)


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
    gain = sum(delete.records for delete in unit.deletes) + 100 * len(unit.positions)
    return gain / max(sum(task.records for task in unit.tasks), 1)


def _merged(units: list[Group]) -> Group:
    return Group(
        tuple(delete for unit in units for delete in unit.deletes),
        tuple(task for unit in units for task in unit.tasks),
        tuple(delete for unit in units for delete in unit.positions),
        sum(unit.scopes for unit in units),
        tuple(delete for unit in units for delete in unit.rowless),
    )
