"""The join engine: key columns of the data files joined with the keys of the equality deletes.

It scales with Spark's join instead of a task's memory. It implements what Iceberg's reader does by itself (table
specification, "Scan Planning"): null equals null, same spec and partition unless global, and strictly smaller sequence
number. Iceberg's reader reads both sides by field id, so that renamed and widened columns, defaults and partition
values that are not in the file are right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F

from lakecdc.iceberg.expressions import might_contain
from lakecdc.iceberg.file_tasks import java_tasks
from lakecdc.iceberg.scan import TaskBuilder, column_names, read_staged
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.local_relation import local_relation
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lakecdc.iceberg.file_tasks import FileTask
    from lakecdc.iceberg.live_deletes import EqualityDelete
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.delete_files.plan import Group

#: number of delete rows up to which every task holds the keys; above it, rows pass a Bloom filter and are shuffled
BROADCAST_DELETE_RECORDS = 1_000_000


@contextmanager
def equality_hits(table: IcebergTable, group: Group) -> Iterator[DataFrame]:
    """Return the positions that the group's equality deletes match: ``file_number`` int, ``position`` long."""
    with ExitStack() as stack:
        hits = []
        for field_ids, deletes in by_key(group.deletes):
            tasks = reached(group.tasks, deletes)
            if tasks:
                hits.append(hits_of(table, stack, field_ids, deletes, tasks))
        yield reduce(lambda left, right: left.unionByName(right), hits)


def hits_of(
    table: IcebergTable,
    stack: ExitStack,
    field_ids: Sequence[int],
    deletes: Sequence[EqualityDelete],
    tasks: Sequence[FileTask],
) -> DataFrame:
    """Return the positions that deletes of one key match in older data files of their scope."""
    columns = column_names(table, field_ids)
    assert columns is not None, "choose_engine refuses dropped key columns"
    data = stack.enter_context(staged_tasks(table, java_tasks(tasks, "none")))
    rows = _read(table, data, columns, F.col("_pos").alias("position"))
    deleted = [f"d{index}" for index in range(len(columns))]
    keys = keys_of_files(table, stack, columns, deletes)
    keys = keys.groupBy(*deleted, "reach").agg(F.max("deleted_at").alias("deleted_at"))
    same, files = _same(table, columns), F.broadcast(file_numbers(table, tasks))
    in_reach = F.col("reach").isNull() | (F.col("reach") == F.col("scope"))
    applies = in_reach & (F.col("sequence_number") < F.col("deleted_at"))
    records = sum(delete.records for delete in deletes)
    if records <= BROADCAST_DELETE_RECORDS:
        # join the keys first, so that only the few matching rows need their file and scope
        hits = rows.join(F.broadcast(keys), same).join(files, "_file").where(applies)
    else:
        # read once for the filter and the join, and never held in memory
        keys = keys.persist(StorageLevel.DISK_ONLY)
        stack.callback(keys.unpersist)
        row_hash = F.xxhash64(*[f"k{index}" for index in range(len(columns))])
        likely = rows.where(might_contain(keys, F.xxhash64(*deleted), records, row_hash))
        hits = likely.join(files, "_file").drop("_file").join(keys, same & applies, "left_semi")
    return hits.select("file_number", "position")


def file_numbers(table: IcebergTable, tasks: Sequence[FileTask]) -> DataFrame:
    """Return the files of tasks, as named by ``_file``, with number, data sequence number and scope."""
    rows = [(task.location, task.number, task.sequence_number, task.scope) for task in tasks]
    return local_relation(table.spark, rows, "_file string, file_number int, sequence_number long, scope int")


def by_key(deletes: Iterable[EqualityDelete]) -> list[tuple[tuple[int, ...], list[EqualityDelete]]]:
    """Group deletes by their equality field ids."""
    sets: dict[tuple[int, ...], list[EqualityDelete]] = {}
    for delete in deletes:
        sets.setdefault(delete.field_ids, []).append(delete)
    return list(sets.items())


def reached(tasks: Iterable[FileTask], deletes: Iterable[EqualityDelete]) -> list[FileTask]:
    """Return the data files that are older than one of the deletes of their scope."""
    newest: dict[int | None, int] = {}
    for delete in deletes:
        newest[delete.scope] = max(newest.get(delete.scope, 0), delete.sequence_number)
    everywhere = newest.get(None, 0)
    return [t for t in tasks if t.equality_deletes and t.sequence_number < max(everywhere, newest.get(t.scope, 0))]


def keys_of_files(
    table: IcebergTable, stack: ExitStack, columns: Sequence[str], deletes: Sequence[EqualityDelete]
) -> DataFrame:
    """Return the deleted keys: d0…, reach (a scope, null for the whole table), deleted_at (a sequence number)."""
    builder = TaskBuilder(table)
    staged = stack.enter_context(staged_tasks(table, [builder.keys_of(delete.java) for delete in deletes]))
    facts = [(delete.location, delete.scope, delete.sequence_number) for delete in deletes]
    files = local_relation(table.spark, facts, "_file string, reach int, deleted_at long")
    keys = _read(table, staged, columns).join(F.broadcast(files), "_file").drop("_file")
    return keys.withColumnsRenamed({f"k{index}": f"d{index}" for index in range(len(columns))})


def _read(table: IcebergTable, staged: str, columns: Sequence[str], *more: Column) -> DataFrame:
    keys = [F.col(quoted_column(column)).alias(f"k{index}") for index, column in enumerate(columns)]
    return read_staged(table, staged).select(*keys, "_file", *more)


def _same(table: IcebergTable, columns: Sequence[str]) -> Column:
    """Return the equality of keys. Null equals null; required columns use plain equality, which hashes faster."""
    required = {field.name for field in table.fields if field.required}
    pairs = [(F.col(f"k{index}"), F.col(f"d{index}"), column in required) for index, column in enumerate(columns)]
    return reduce(
        lambda left, right: left & right, [key == d if plain else key.eqNullSafe(d) for key, d, plain in pairs]
    )
