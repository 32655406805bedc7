"""The native engine: Python tasks look up deleted keys in data files and write delete files in one pass.

It is equivalent to the join (table specification, "Scan Planning") for keys of plain types in Parquet files with
Iceberg's field ids. Data files without every key column as the table has it (an older default, a partition value not in
the file, another format) are left to the join, and such delete files to Iceberg's reader.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.core_time import counted
from lakecdc.iceberg.file_io import reaches, storage_properties
from lakecdc.iceberg.file_tasks import others_of
from lakecdc.local_relation import dealt
from lakecdc.maintain.delete_files import match_join
from lakecdc.maintain.delete_files.key_lookup import KeyColumn, Lookup, packed, unpacked
from lakecdc.maintain.delete_files.native_tasks import KEYS, ConvertTask, KeysTask
from lakecdc.writer.deletes import RESULT, collect_results

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.iceberg.delete_file_objects import WrittenDeletes
    from lakecdc.iceberg.file_tasks import FileTask
    from lakecdc.iceberg.live_deletes import EqualityDelete
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.delete_files.plan import Group
    from lakecdc.writer.deletes import Target, Writer

_PLAIN = re.compile(r"^(boolean|int|long|string|date|timestamp|timestamptz|decimal\(\d+, \d+\))$")
_DATA_FILE = (
    "number int, location string, scope int, sequence_number long, "
    "known array<struct<location: string, format: string, offset: bigint, length: bigint>>"
)
_DELETE_FILE = "number int, location string, reach int, deleted_at long"
_FORMATS, _DELETES = ("PUFFIN", "PARQUET"), ("location", "format", "offset", "length")
#: maximum number of pairs of data file and delete file, each opened by a task
MAX_PAIRS = 20_000


def can_match(table: IcebergTable, group: Group) -> bool:
    """Check whether this engine compares the group's key types as Iceberg does, and whether the keys are few enough."""
    kinds = {field.id: field.type for field in table.fields}
    keys = {field_id for delete in group.deletes for field_id in delete.field_ids}
    plain = all(_PLAIN.match(kinds.get(field_id, "")) for field_id in keys)
    single = all(len(delete.field_ids) == 1 for delete in group.deletes)
    equipped = single or importlib.util.find_spec("duckdb") is not None
    return plain and equipped and group.delete_records <= match_join.BROADCAST_DELETE_RECORDS


def convert(
    table: IcebergTable, group: Group, target: Target, writer: Writer
) -> tuple[list[WrittenDeletes], frozenset[int]]:
    """Write a group's delete files as far as this engine can; return the numbers of data files left to the join."""
    known = delete_files(task for task in group.tasks if reaches(task.location))
    # largest first, so that no large file starts last
    ranked = sorted((task for task in group.tasks if task.number in known), key=lambda t: t.records, reverse=True)
    rows = [(t.number, t.location, t.scope, t.sequence_number, known[t.number]) for t in ranked]
    left = frozenset(task.number for task in group.tasks if task.number not in known)
    if not rows:
        return [], left
    with ExitStack() as stack:
        keys = [
            _lookup(table, stack, field_ids, deletes)
            for field_ids, deletes in match_join.by_key(group.deletes)
            if match_join.reached(group.tasks, deletes)
        ]
        task = ConvertTask(tuple(keys), target, writer)
        written, unread = collect_results(
            dealt(table.spark, rows, _DATA_FILE).mapInArrow(counted(table.spark, task), RESULT)
        )
    return written, left | unread


def _lookup(table: IcebergTable, stack: ExitStack, field_ids: tuple[int, ...], deletes: list[EqualityDelete]) -> Lookup:
    by_id = {field.id: field for field in table.fields}
    columns = tuple(KeyColumn(field_id, by_id[field_id].type) for field_id in field_ids)
    keys, left = deleted_keys(table, columns, deletes)
    if left:
        names = [by_id[field_id].name for field_id in field_ids]
        keys.append(match_join.keys_of_files(table, stack, names, left).toArrow())
    sent = table.spark.sparkContext.broadcast(packed(keys, columns))
    stack.callback(sent.destroy)
    return Lookup(columns, sent)


def deleted_keys(
    table: IcebergTable, columns: tuple[KeyColumn, ...], deletes: Sequence[EqualityDelete]
) -> tuple[list[pa.Table], list[EqualityDelete]]:
    """Read equality-delete files of one key as far as Arrow reads them with certainty.

    :return: tables of d0…, reach and deleted_at, as in ``match_join``; and the deletes left to Iceberg's reader: not
        Parquet, without field ids, or without a key column as the table has it.
    """
    numbered = list(enumerate(deletes))
    near = [(number, d.location, d.scope, d.sequence_number) for number, d in numbered if reaches(d.location)]
    left = {number for number, delete in numbered if not reaches(delete.location)}
    keys = []
    if near:
        task = KeysTask(columns, storage_properties(table))
        for row in dealt(table.spark, near, _DELETE_FILE).mapInArrow(counted(table.spark, task), KEYS).collect():
            keys.append(unpacked(row["keys"]))
            left.update(row["unread"])
    return keys, [delete for number, delete in numbered if number in left]


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
        if all(other.format in _FORMATS and reaches(other.location) for other in others):
            by_number[number] = [{name: getattr(other, name) for name in _DELETES} for other in others]
    return by_number
