"""Deleted rows of data files, by equality deletes and by existing position deletes.

Three engines find the rows that equality deletes match: ``exact`` is Iceberg's own reader. ``join`` joins the key
columns of the data files with the keys of the deletes, and scales with Spark's join instead of a task's memory.
``native`` looks up the keys in Python tasks and writes delete files in the same pass; it is equivalent for keys of
plain types in Parquet files with Iceberg's field ids. Data files without every key column as the table has it (an older
default, a partition value not in the file, another format) are left to the join, and such delete files to Iceberg's
reader.

The join implements what Iceberg's reader does by itself (table specification, "Scan Planning"): null equals null, same
spec and partition unless global, and strictly smaller sequence number. Iceberg's reader reads both sides by field id,
so that renamed and widened columns, defaults and partition values that are not in the file are right.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import UnsupportedError
from lakecdc.iceberg.core_time import counted
from lakecdc.iceberg.delete_file_objects import WrittenDeletes
from lakecdc.iceberg.expressions import might_contain
from lakecdc.iceberg.file_io import new_folder, reaches
from lakecdc.iceberg.file_tasks import FileTask, Form, java_tasks, others_of
from lakecdc.iceberg.live_deletes import EqualityDelete
from lakecdc.iceberg.scan import TaskBuilder, column_names, read_staged
from lakecdc.iceberg.staging import staged_tasks
from lakecdc.iceberg.stored_types import unread_columns
from lakecdc.iceberg.table import IcebergTable
from lakecdc.key_search.keys import Seen, deleted_keys, near_files, sent_lookup
from lakecdc.key_search.tasks import (
    FOUND,
    PLAIN,
    ConvertTask,
    Lookup,
    key_column,
    only,
    unpacked,
)
from lakecdc.local_relation import dealt, local_relation
from lakecdc.metadata.readers import NEWEST_VERSION
from lakecdc.reader.data_files import DELETES
from lakecdc.sql import quoted_column
from lakecdc.writer.deletes import RESULT, Target, Writer, collect_results, write

Engine = Literal["exact", "join", "native"]
_DATA_FILE = (
    f"number int, location string, scope int, sequence_number long, first_row_id long, known {DELETES}, found binary"
)
#: formats of position deletes that tasks read
FORMATS = ("PUFFIN", "PARQUET")
#: maximum number of pairs of data file and delete file, each opened by a task
MAX_PAIRS = 20_000
#: number of delete rows up to which every task holds the keys; above it, rows pass a Bloom filter and are shuffled
BROADCAST_DELETE_RECORDS = 1_000_000


@dataclass(frozen=True)
class KeySearch:
    """Keys to find, and the data files to find them in.

    :param deletes: equality deletes, live or staged, whose keys are searched for.
    :param tasks: every data file that one of them applies to.
    :param seen: what is known already; only for deletes of one key, and the native engine alone makes use of it.
    """

    deletes: tuple[EqualityDelete, ...]
    tasks: tuple[FileTask, ...]
    seen: Seen | None = field(default=None, kw_only=True)

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


def refusal(table: IcebergTable) -> str | None:
    """Say why a table's delete files cannot be written with certainty; None if they can."""
    if table.format_version > NEWEST_VERSION:
        return f"The format version {table.format_version} is not supported."
    if table.is_encrypted:
        return "Its files are encrypted; delete files are written unencrypted."
    if not reaches(folder := new_folder(table, "deletes")):
        return f"Its new files would go below {folder}, and tasks cannot write to paths with '#' or '?'."
    for name, kind in unread_columns(table.schema_fields).items():
        return f"The column {name!r} has the type {kind}, which Spark cannot read."
    return None


def refuse_table(table: IcebergTable) -> None:
    """Refuse a table whose delete files cannot be written with certainty."""
    if why := refusal(table):
        raise UnsupportedError(why, table=table.name)


@contextmanager
def deleted_positions(table: IcebergTable, search: KeySearch, engine: Engine) -> Iterator[DataFrame]:
    """Return every deleted position of the group's data files.

    :return: a frame valid inside the ``with``: ``file_number`` int, ``position`` long, ``known`` boolean: whether
        position deletes already have it. A position may come several times.
    """
    with ExitStack() as stack:
        frames = []
        if search.pairs:
            if engine == "exact":
                # tasks with only the equality deletes, so that every marked row is marked by them
                hit = stack.enter_context(_marked(table, [t for t in search.tasks if t.equality_deletes], "equality"))
                hits = [hit]
            else:
                hits = [hits_of(table, stack, *of_key) for of_key in _reached_by_key(search)]
            frames += [hit.withColumn("known", F.lit(False)) for hit in hits]
        if tasks := [task for task in search.tasks if task.others]:
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
        numbers = F.broadcast(file_numbers(table, tasks))
        yield rows.join(numbers, "_file").selectExpr("file_number", "_pos AS position")


@dataclass
class SearchFacts:
    """Rows and numbers that a search reports beside the positions.

    :param rows: takes the keys and row ids of newly deleted rows, as far as the native engine finds these; None if they
        are not wanted.
    :param searched: number of data files whose rows were compared.
    """

    rows: list[pa.Table] | None = None
    searched: int = 0


def convert(
    table: IcebergTable,
    search: KeySearch,
    engine: Engine,
    target: Target,
    writer: Writer,
    facts: SearchFacts | None = None,
) -> list[WrittenDeletes]:
    """Find the deleted positions of a group's data files and write them; the native engine leaves some to the join.

    :param facts: takes rows and numbers for the caller.
    """
    written = list[WrittenDeletes]()
    if facts is None:
        facts = SearchFacts()
    if engine == "native":
        written, left = _convert_natively(table, search, target, writer, facts)
        if not left:
            return written
        search, engine = replace(search, tasks=tuple(t for t in search.tasks if t.number in left)), "join"
    facts.searched += len(search.tasks)
    tasks = min(len(search.tasks), 4 * table.spark.sparkContext.defaultParallelism)
    with deleted_positions(table, search, engine) as positions:
        return written + write(positions, target, writer, tasks)


def hits_of(
    table: IcebergTable,
    stack: ExitStack,
    field_ids: Sequence[int],
    deletes: Sequence[EqualityDelete],
    tasks: Sequence[FileTask],
) -> DataFrame:
    """Return the positions that deletes of one key match: ``file_number`` int, ``position`` long."""
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


def _reached_by_key(search: KeySearch) -> Iterator[tuple[tuple[int, ...], list[EqualityDelete], list[FileTask]]]:
    """Yield the deletes of each key, by its field ids, and the data files that are older than one of their scope."""
    by_key: dict[tuple[int, ...], list[EqualityDelete]] = {}
    for delete in search.deletes:
        by_key.setdefault(delete.field_ids, []).append(delete)
    for field_ids, deletes in by_key.items():
        if tasks := _reached(search.tasks, deletes):
            yield field_ids, deletes, tasks


def _reached(tasks: Iterable[FileTask], deletes: Iterable[EqualityDelete]) -> list[FileTask]:
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


def can_match_natively(table: IcebergTable, search: KeySearch) -> bool:
    """Check whether the native engine compares the key types as Iceberg does, and whether the keys are few enough."""
    kinds = {field.id: field.type for field in table.fields}
    keys = {field_id for delete in search.deletes for field_id in delete.field_ids}
    plain = all(PLAIN.match(kinds.get(field_id, "")) for field_id in keys)
    single = all(len(delete.field_ids) == 1 for delete in search.deletes)
    equipped = single or importlib.util.find_spec("duckdb") is not None
    return plain and equipped and search.delete_records <= BROADCAST_DELETE_RECORDS


def _convert_natively(
    table: IcebergTable, search: KeySearch, target: Target, writer: Writer, facts: SearchFacts
) -> tuple[list[WrittenDeletes], frozenset[int]]:
    """Write a group's delete files as far as possible; return the numbers of data files left to the join."""
    known = delete_files(task for task in search.tasks if reaches(task.location))
    # largest first, so that no large file starts last
    ranked = sorted((task for task in search.tasks if task.number in known), key=lambda t: t.records, reverse=True)
    left = frozenset(task.number for task in search.tasks if task.number not in known)
    if not ranked:
        return [], left
    seen = search.seen
    with ExitStack() as stack:
        keys = tuple(_lookup(table, stack, ids, deletes, seen) for ids, deletes, _ in _reached_by_key(search))
        found = only(seen.rows, keys[0].all) if seen and keys else None
        positions = _by_file(found) if found else {}
        near = set(target.merge).union(*(near_files(table, ranked, one) for one in keys))
        facts.searched += len(near)
        ranked = [t for t in ranked if t.number in near or t.number in positions]
        if not ranked:
            return [], left
        rows = [
            (t.number, t.location, t.scope, t.sequence_number, t.first_row_id, known[t.number], positions.get(t.number))
            for t in ranked
        ]
        task = ConvertTask(keys, target, writer, with_rows=facts.rows is not None)
        schema = RESULT if facts.rows is None else FOUND
        results = dealt(table.spark, rows, _DATA_FILE).mapInArrow(counted(table.spark, task), schema).collect()
    if facts.rows is not None:
        facts.rows += [unpacked(row["found"]) for row in results if row["found"] is not None]
        facts.rows += [found.drop_columns("position")] if found else []
    written, unread = collect_results(results)
    return written, left | unread


def _by_file(found: pa.Table) -> dict[int, bytes]:
    """Return the positions in each data file, as 64-bit integers."""
    rows = found.select(["file", "position"]).sort_by("file")
    file, position = (rows[name].to_numpy() for name in rows.column_names)
    cuts = [0, *(np.flatnonzero(np.diff(file)) + 1).tolist(), len(file)]
    return {int(file[begin]): position[begin:end].tobytes() for begin, end in pairwise(cuts) if begin < end}


def _lookup(
    table: IcebergTable,
    stack: ExitStack,
    field_ids: tuple[int, ...],
    deletes: list[EqualityDelete],
    seen: Seen | None = None,
) -> Lookup:
    by_id = {field.id: field for field in table.fields}
    columns = tuple(key_column(by_id[field_id]) for field_id in field_ids)
    keys, left = deleted_keys(table, columns, deletes)
    if left:
        names = [by_id[field_id].name for field_id in field_ids]
        keys.append(keys_of_files(table, stack, names, left).toArrow())
    return sent_lookup(table, stack, columns, keys, seen)


def delete_files(tasks: Iterable[FileTask]) -> dict[int, list[dict[str, Any]]]:
    """Return the position deletes and deletion vectors of each data file, by its number.

    :return: without data files that have deletes of another format or out of a task's reach, and, if there are too many
        pairs, without any that have deletes.
    """
    listing = list(tasks)
    by_number: dict[int, list[dict[str, Any]]] = {task.number: [] for task in listing if not task.others}
    if sum(task.others for task in listing) > MAX_PAIRS:
        return by_number
    for number, others in others_of(listing).items():
        if all(other.format in FORMATS and reaches(other.location) for other in others):
            by_number[number] = [other.for_tasks for other in others]
    return by_number
