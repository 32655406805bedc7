"""The native engine: Python tasks read the key columns of the data files with Arrow and look them up.

Means the same as the join (table specification, "Scan Planning"), for keys of plain types in Parquet files that carry
Iceberg's field ids. The keys come from Iceberg's reader; a data file in which a task does not find every key column
as the table has it (an older default, a partition value that is not in the file, another format) is left to the join.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark import StorageLevel

from lakecdc.iceberg.file_io import storage_properties
from lakecdc.local_relation import dealt
from lakecdc.maintain.delete_files import match_exact, match_join
from lakecdc.maintain.delete_files.key_lookup import KeyColumn, Lookup, packed, run_task
from lakecdc.maintain.delete_files.known_positions import delete_files, read_positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.live_deletes import EqualityDelete
    from lakecdc.iceberg.scan import FileTask
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.delete_files.plan import Group

_PLAIN = re.compile(r"^(boolean|int|long|string|date|timestamp|timestamptz|decimal\(\d+, \d+\))$")
_FILE = "file_number int, location string, scope int, sequence_number long"
_HIT = "file_number int, position long"


def can_match(table: IcebergTable, group: Group) -> bool:
    """Tell whether the group's keys are of types that this engine compares as Iceberg does, and few enough."""
    kinds = {field.id: field.type for field in table.fields}
    keys = {field_id for delete in group.deletes for field_id in delete.field_ids}
    plain = all(_PLAIN.match(kinds.get(field_id, "")) for field_id in keys)
    single = all(len(delete.field_ids) == 1 for delete in group.deletes)
    equipped = single or importlib.util.find_spec("duckdb") is not None
    return plain and equipped and group.delete_records <= match_join.BROADCAST_DELETE_RECORDS


@contextmanager
def equality_hits(table: IcebergTable, group: Group) -> Iterator[DataFrame]:
    """Positions that the group's equality deletes hit.

    :return: ``file_number`` int, ``position`` long.
    """
    with ExitStack() as stack:
        hits = []
        for field_ids, deletes in match_join.by_key(group.deletes):
            tasks = match_join.reached(group.tasks, deletes)
            if not tasks:
                continue
            found = _looked_up(table, stack, field_ids, deletes, tasks).persist(StorageLevel.DISK_ONLY)
            stack.callback(found.unpersist)
            unread = {row.file_number for row in found.where("position IS NULL").select("file_number").collect()}
            hits.append(found.where("position IS NOT NULL"))
            left = [task for task in tasks if task.number in unread]
            if left:
                hits.append(match_join.hits_of(table, stack, field_ids, deletes, left))
        yield reduce(lambda one, other: one.unionByName(other), hits)


@contextmanager
def positions_known(table: IcebergTable, tasks: Sequence[FileTask]) -> Iterator[DataFrame]:
    """Positions that position deletes and deletion vectors name already.

    :return: ``file_number`` int, ``position`` long.
    """
    found = delete_files(list(tasks))
    with ExitStack() as stack:
        frames = [read_positions(table, found.rows)] if found.rows else []
        if found.unread:
            frames.append(stack.enter_context(match_exact.positions_known(table, found.unread)))
        yield reduce(lambda one, other: one.unionByName(other), frames)


def _looked_up(
    table: IcebergTable,
    stack: ExitStack,
    field_ids: Sequence[int],
    deletes: Sequence[EqualityDelete],
    tasks: Sequence[FileTask],
) -> DataFrame:
    """Positions that are hit, and for each file that was not read a null."""
    session, by_id = table.spark, {field.id: field for field in table.fields}
    columns = [KeyColumn(field_id, by_id[field_id].type) for field_id in field_ids]
    names = [by_id[field_id].name for field_id in field_ids]
    keys = match_join.deleted_keys(table, stack, names, deletes)
    sent = session.sparkContext.broadcast(packed(keys.toArrow(), columns))
    stack.callback(sent.destroy)
    lookup = Lookup(tuple(columns), sent, storage_properties(table))
    ranked = sorted(tasks, key=lambda task: task.records, reverse=True)
    files = [(task.number, task.location, task.scope, task.sequence_number) for task in ranked]
    return dealt(session, files, _FILE).mapInArrow(partial(run_task, lookup=lookup), _HIT)
