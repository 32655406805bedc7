"""The join engine: key columns of the data files joined with the keys of the equality deletes.

Scales with Spark's join instead of the memory of a task. What Iceberg's reader does by itself is spelled out here
(table specification, "Scan Planning"): null equals null, same spec and partition unless global, and strictly smaller
sequence number. Both sides are read by Iceberg's reader, by field id, so that renamed and widened columns, defaults
and partition values that are not in the file come out right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.iceberg.scan import TaskBuilder, column_names, read_staged, with_deletes_of
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.maintain.delete_files.match_exact import file_numbers

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakecdc.iceberg.scan import EqualityDelete, FileTask
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.delete_files.plan import Group


@contextmanager
def equality_hits(table: IcebergTable, group: Group) -> Iterator[DataFrame]:
    """Positions that the group's equality deletes hit.

    :return: ``file_number`` int, ``position`` long.
    """
    builder = TaskBuilder(table)
    with ExitStack() as stack:
        hits = []
        for field_ids, deletes in _by_key(group.deletes):
            tasks = with_deletes_of(table, group.tasks, deletes)
            if not tasks:
                continue
            columns = column_names(table, field_ids)
            assert columns is not None, "choose_engine refuses dropped key columns"
            data = stack.enter_context(staged_tasks(table, [builder.task(task.java) for task in tasks]))
            keys = stack.enter_context(staged_tasks(table, [builder.keys_of(delete.java) for delete in deletes]))
            hits.append(_hits(_rows(table, data, columns, tasks), _keys(table, keys, columns, deletes), len(columns)))
        yield reduce(lambda left, right: left.unionByName(right), hits)


def _by_key(deletes: Iterable[EqualityDelete]) -> list[tuple[tuple[int, ...], list[EqualityDelete]]]:
    sets: dict[tuple[int, ...], list[EqualityDelete]] = {}
    for delete in deletes:
        sets.setdefault(delete.field_ids, []).append(delete)
    return list(sets.items())


def _rows(table: IcebergTable, staged: str, columns: Sequence[str], tasks: Sequence[FileTask]) -> DataFrame:
    """Physical rows: k0…, position, file_number, sequence_number, scope."""
    rows = _read(table, staged, columns, F.col("_pos").alias("position"))
    return rows.join(F.broadcast(file_numbers(table, tasks)), "_file").drop("_file")


def _keys(table: IcebergTable, staged: str, columns: Sequence[str], deletes: Sequence[EqualityDelete]) -> DataFrame:
    """Deleted keys: d0…, reach (a scope, null for the whole table), deleted_at (the newest sequence number)."""
    facts = [(delete.location, delete.scope, delete.sequence_number) for delete in deletes]
    files = table.spark.createDataFrame(facts, "_file string, reach int, deleted_at long")
    keys = _read(table, staged, columns).join(F.broadcast(files), "_file").drop("_file")
    names = [f"k{index}" for index in range(len(columns))]
    newest = keys.groupBy(*names, "reach").agg(F.max("deleted_at").alias("deleted_at"))
    return newest.withColumnsRenamed({name: f"d{name[1:]}" for name in names})


def _read(table: IcebergTable, staged: str, columns: Sequence[str], *more: Column) -> DataFrame:
    keys = [F.col(f"`{column}`").alias(f"k{index}") for index, column in enumerate(columns)]
    return read_staged(table, staged).select(*keys, "_file", *more)


def _hits(rows: DataFrame, keys: DataFrame, width: int) -> DataFrame:
    same = [F.col(f"k{index}").eqNullSafe(F.col(f"d{index}")) for index in range(width)]
    reached = F.col("reach").isNull() | (F.col("reach") == F.col("scope"))
    older = F.col("sequence_number") < F.col("deleted_at")
    condition = reduce(lambda left, right: left & right, [*same, reached, older])
    return rows.join(keys, condition, "left_semi").select("file_number", "position")
