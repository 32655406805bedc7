"""Deleted rows of data files, by equality deletes and by existing position deletes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import reduce
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import UnsupportedError
from lakecdc.iceberg import file_tasks
from lakecdc.iceberg.delete_file_objects import WrittenDeletes
from lakecdc.iceberg.file_tasks import FileTask, Form, java_tasks, others_of
from lakecdc.iceberg.scan import column_names, read_staged
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.iceberg.table import IcebergTable
from lakecdc.maintain.delete_files import convert_native, match_join
from lakecdc.maintain.delete_files.plan import Group
from lakecdc.metadata.work import EXACT_DATA_RECORDS, EXACT_DELETE_RECORDS, EXACT_PAIRS
from lakecdc.writer.deletes import Target, Writer, write

Engine = Literal["exact", "join", "native"]


def choose_engine(table: IcebergTable, group: Group, requested: str) -> Engine:
    """Choose the engine for a group.

    :param requested: the option: ``auto``, ``exact``, ``join`` or ``native``; what the native engine cannot match is
        joined.
    :raises UnsupportedError: only Iceberg's own reader still knows a dropped key column, but a join is requested or
        there are too many deletes for it.
    """
    dropped = any(column_names(table, ids) is None for ids in {delete.field_ids for delete in group.deletes})
    too_many = not all(task.paired for task in group.tasks)
    small = (
        not too_many
        and group.delete_records <= EXACT_DELETE_RECORDS
        and group.pairs <= EXACT_PAIRS
        and group.data_records <= EXACT_DATA_RECORDS
    )
    if dropped and (requested in ("join", "native") or too_many):
        raise UnsupportedError(
            "Cannot join the keys: a key column of the equality deletes was dropped.",
            table=table.name,
            hint="Use the engine 'exact' or 'auto'; with millions of deletes, compact_data_files.",
        )
    if requested == "exact" and too_many:
        raise UnsupportedError(
            f"The engine 'exact' supports {file_tasks.MAX_PAIRS} pairs of data and delete files; the table has more.",
            table=table.name,
            hint="Use the engine 'join' or 'auto'.",
        )
    if requested == "exact" or (requested == "auto" and (dropped or small)):
        return "exact"
    return "native" if requested != "join" and convert_native.can_match(table, group) else "join"


@contextmanager
def deleted_positions(table: IcebergTable, group: Group, engine: Engine) -> Iterator[DataFrame]:
    """Return every deleted position of the group's data files.

    :return: a frame valid inside the ``with``: ``file_number`` int, ``position`` long, ``known`` boolean: whether
        position deletes already have it. A position may come several times.
    """
    with ExitStack() as stack:
        frames = []
        if group.pairs:
            if engine == "exact":
                # tasks with only the equality deletes, so that every marked row is marked by them
                tasks = [task for task in group.tasks if task.equality_deletes]
                hit = stack.enter_context(_marked(table, tasks, "equality"))
            else:
                hit = stack.enter_context(match_join.equality_hits(table, group))
            frames.append(hit.withColumn("known", F.lit(False)))
        if tasks := [task for task in group.tasks if task.others]:
            known = stack.enter_context(_marked(table, tasks, "others"))
            frames.append(known.withColumn("known", F.lit(True)))
        yield reduce(DataFrame.unionByName, frames)


@contextmanager
def _marked(table: IcebergTable, tasks: Sequence[FileTask], form: Form) -> Iterator[DataFrame]:
    """Return the rows that Iceberg's own reader marks as deleted: ``file_number`` int, ``position`` long.

    Iceberg handles nulls, promoted types, dropped columns, scopes and sequence numbers. Each task holds all delete rows
    of its file in memory.
    """
    with staged_tasks(table, java_tasks(tasks, form)) as staged:
        rows = read_staged(table, staged).where("_deleted").select("_file", "_pos")
        numbers = F.broadcast(match_join.file_numbers(table, tasks))
        yield rows.join(numbers, "_file").selectExpr("file_number", "_pos AS position")


def merged_tasks(group: Group) -> frozenset[int]:
    """Return the numbers of the group's data files whose position deletes are merged."""
    going = {delete.key for delete in group.positions}
    applying = others_of(group.tasks) if going else {}
    return frozenset(number for number, others in applying.items() if any(other.key in going for other in others))


def convert(table: IcebergTable, group: Group, engine: Engine, target: Target, writer: Writer) -> list[WrittenDeletes]:
    """Find the deleted positions of a group's data files and write them; the native engine leaves some to the join."""
    written: list[WrittenDeletes] = []
    if engine == "native":
        written, left = convert_native.convert(table, group, target, writer)
        if not left:
            return written
        group, engine = replace(group, tasks=tuple(t for t in group.tasks if t.number in left)), "join"
    tasks = min(len(group.tasks), 4 * table.spark.sparkContext.defaultParallelism)
    with deleted_positions(table, group, engine) as positions:
        return written + write(positions, target, writer, tasks)
