"""Find the deleted rows of data files, by equality deletes and by existing position deletes.

Python tasks look up the deleted keys in the key columns of the data files, and write delete files in the same pass.
They compare keys as Iceberg does (table specification, "Scan Planning"): null equals null, same spec and partition
unless global, and a strictly smaller sequence number; columns are matched by field id, so that renamed, widened and
dropped columns and defaults are right. Keys that do not fit into a task are sent in parts.

Data files that tasks cannot read with certainty, see :func:`_why_iceberg`, are left to Iceberg's own reader, which
marks the deleted rows: as many keys at a time as fit into its memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import UnsupportedError
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.file_io import new_folder, reaches
from lakecdc.iceberg.file_tasks import (
    FileTask,
    java_tasks,
    others_of,
    parts_by_others,
    parts_by_pairs,
    tasks_under,
)
from lakecdc.iceberg.live_deletes import EqualityDelete
from lakecdc.iceberg.reader_memory import most_keys
from lakecdc.iceberg.scan import read_staged
from lakecdc.iceberg.staging import WrittenDeletes, staged_tasks
from lakecdc.iceberg.stored_types import unread_columns
from lakecdc.iceberg.table import IcebergTable
from lakecdc.key_search.keys import (
    MOST_KEYS,
    Seen,
    deleted_keys,
    key_columns,
    key_ranges,
    near_files,
    sent_keys,
    stored_in,
)
from lakecdc.key_search.tasks import FILE, HITS, Lookup, SearchTask, only, packed, serialized, unpacked, without
from lakecdc.local_relation import local_relation, spread
from lakecdc.metadata.file_sizes import cut
from lakecdc.metadata.readers import NEWEST_VERSION
from lakecdc.reader.projection import UnreadError
from lakecdc.writer.deletes import Target, Writer, collect_results, write

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeySearch:
    """Keys to find, and the data files to find them in.

    :param deletes: equality deletes, live or staged, whose keys are searched for.
    :param tasks: every data file that one of them applies to.
    :param seen: known hits; only for deletes of one key.
    """

    deletes: tuple[EqualityDelete, ...]
    tasks: tuple[FileTask, ...]
    seen: Seen | None = field(default=None, kw_only=True)


def refusal(table: IcebergTable) -> str | None:
    """Return why a table's delete files cannot be written with certainty; None if they can."""
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


@dataclass
class SearchFacts:
    """Rows and counts that a search reports beside the positions.

    :param rows: collects newly deleted rows with keys, ``d0`` …, ``row_id`` and ``file``, as far as tasks find these;
        None collects none.
    :param searched: number of data files whose rows were compared.
    :param by_iceberg: why Iceberg's reader searched data files, one reason for each.
    """

    rows: list[pa.Table] | None = None
    searched: int = 0
    by_iceberg: list[str] = field(default_factory=list)

    def log_iceberg(self, table: IcebergTable) -> None:
        """Log how many data files Iceberg's reader searched and the first reasons, if there are any."""
        if self.by_iceberg:
            first = "; ".join(list(dict.fromkeys(self.by_iceberg))[:3])
            log.info("%s: Iceberg's reader searched %d data files: %s", table.name, len(self.by_iceberg), first)


@dataclass(frozen=True)
class _SentKeys:
    """The keys of a search.

    :param near: places of the parts of keys to search a data file for, by its number and the lookup's place.
    :param known_positions: positions that are known to have a key, by number of the data file, as 64-bit integers.
    :param unread: the newest delete whose keys tasks cannot read or compare, by scope: sequence number, reason.
    """

    lookups: tuple[Lookup, ...]
    near: Mapping[int, Mapping[int, list[int]]]
    known_positions: Mapping[int, bytes]
    unread: Mapping[int | None, tuple[int, str]]

    def parts(self, task: FileTask) -> list[list[int]]:
        """Return the places of the parts of each lookup's keys that a data file may contain."""
        near = self.near.get(task.number, {})
        return [near.get(place, []) for place in range(len(self.lookups))]

    def why_unread(self, task: FileTask) -> str | None:
        """Return why tasks do not know all keys to search a data file for; None if they do."""
        applying = (self.unread.get(scope, (0, "")) for scope in (task.scope, None))
        return next((why for number, why in applying if task.sequence_number < number), None)


def convert(
    table: IcebergTable, search: KeySearch, target: Target, writer: Writer, facts: SearchFacts
) -> list[WrittenDeletes]:
    """Find the deleted positions of a group's data files and write them; add to ``facts``."""
    written, left = list[WrittenDeletes](), dict[int, str]()
    with ExitStack() as stack:
        sent = _sent(table, stack, search, facts)
        task = SearchTask(sent.lookups, stored_in(table), target, writer, with_rows=facts.rows is not None)
        numbers = sent.near.keys() | sent.known_positions.keys() | target.merge
        tasks = [one for one in search.tasks if one.number in numbers or sent.why_unread(one)]
        # largest first, so that no large file starts last
        for part in parts_by_others(sorted(tasks, key=lambda one: one.records, reverse=True)):
            known = delete_files(part)
            left |= {one.number: why for one in part if (why := _why_iceberg(one, known, sent))}
            near = [one for one in part if one.number not in left]
            facts.searched += sum(one.number in sent.near for one in near)
            rows = [file_row(t, known[t.number], sent.known_positions.get(t.number), sent.parts(t)) for t in near]
            results = run_tasks(spread(table.spark, rows, FILE), task, HITS).collect()
            if facts.rows is not None:
                facts.rows += [unpacked(row["hit_rows"]) for row in results if row["hit_rows"] is not None]
            described, unread = collect_results(results)
            written, left = written + described, left | unread
    if not left:
        return written
    facts.by_iceberg += left.values()
    rest = [one for one in tasks if one.number in left]
    facts.searched += len(rest)
    for part in parts_by_pairs(rest, search.deletes):
        count = min(len(part), 4 * table.spark.sparkContext.defaultParallelism)
        with deleted_positions(table, search.deletes, part) as positions:
            written += write(positions, target, writer, count)
    return written


def file_row(
    task: FileTask,
    deletes: Sequence[Mapping[str, Any]],
    known_positions: bytes | None = None,
    parts: Sequence[Sequence[int]] | None = None,
) -> tuple[Any, ...]:
    """Describe a data file for tasks, see :data:`FILE`."""
    known = task.number, task.location, task.scope, task.sequence_number, task.first_row_id, task.records
    return *known, deletes, known_positions, parts


def _why_iceberg(task: FileTask, known: Mapping[int, Any], sent: _SentKeys) -> str | None:
    """Return why Iceberg's reader has to search a data file, as known before the read; None if tasks can.

    :param known: position deletes that tasks can read, by number of the data file.
    """
    if not reaches(task.location):
        return "tasks cannot read a path with '#' or '?'"
    if task.number not in known:
        return f"tasks cannot read the position deletes of {task.location}"
    return sent.why_unread(task)


@contextmanager
def deleted_positions(
    table: IcebergTable, deletes: Sequence[EqualityDelete], tasks: Sequence[FileTask]
) -> Iterator[DataFrame]:
    """Yield the deleted positions of data files, as Iceberg's own reader marks them.

    :return: a frame valid inside the context: ``file_number`` int, ``position`` long, ``known`` boolean: whether
        position deletes already have it. A position may occur several times.
    """
    most = most_keys(table.spark)
    parts = [(tasks_under(table, tasks, part), False) for part in cut(deletes, most, lambda delete: delete.records)]
    if known := [task for task in tasks if task.others]:
        parts.append((java_tasks(known, "others"), True))
    numbers = [(task.location, task.number) for task in tasks]
    with ExitStack() as stack:
        files = F.broadcast(local_relation(table.spark, numbers, "_file string, file_number int"))
        frames = [
            read_staged(table, stack.enter_context(staged_tasks(table, java)))
            .where("_deleted")
            .select("_file", F.col("_pos").alias("position"), F.lit(is_known).alias("known"))
            .join(files, "_file")
            .select("file_number", "position", "known")
            for java, is_known in parts
            if java.size()
        ]
        none = local_relation(table.spark, [], "file_number int, position long, known boolean")
        yield reduce(DataFrame.unionByName, frames, none)


def _sent(table: IcebergTable, stack: ExitStack, search: KeySearch, facts: SearchFacts) -> _SentKeys:
    """Send the keys of a search to tasks, as long as the stack is open."""
    lookups, near, positions = list[Lookup](), dict[int, dict[int, list[int]]](), dict[int, bytes]()
    unread, seen = list[tuple[EqualityDelete, str]](), search.seen
    left = seen.rows if seen else None
    by_key: dict[tuple[int, ...], list[EqualityDelete]] = {}
    for delete in search.deletes:
        by_key.setdefault(delete.field_ids, []).append(delete)
    for field_ids, deletes in by_key.items():
        if not (tasks := _reached(search.tasks, deletes)):
            continue
        try:
            columns = key_columns(table, field_ids)
        except UnreadError as error:
            unread += [(delete, str(error)) for delete in deletes]
            continue
        sent, others = list[Any](), list[Any]()
        for part in key_ranges(deletes, MOST_KEYS):
            tables, why = deleted_keys(table, columns, part)
            unread += [(delete, why[delete.location]) for delete, *_ in part if delete.location in why]
            content = packed(tables, columns)
            keys = unpacked(content)
            for number in near_files(table, tasks, columns, keys, seen):
                near.setdefault(number, {}).setdefault(len(lookups), []).append(len(sent))
            sent.append(sent_keys(table, stack, content))
            if seen and left is not None:
                others.append(sent_keys(table, stack, serialized(without(keys, seen.keys))))
                # a key may be in several parts
                rows, left = only(left, keys), without(left, keys)
                positions |= {number: positions.get(number, b"") + places for number, places in _by_file(rows).items()}
                if facts.rows is not None:
                    facts.rows.append(rows)
        lookups.append(Lookup(columns, tuple(sent), tuple(others), seen.files if seen else frozenset()))
    unread.sort(key=lambda one: one[0].sequence_number)
    newest = {delete.scope: (delete.sequence_number, why) for delete, why in unread}
    return _SentKeys(tuple(lookups), near, positions, newest)


def _reached(tasks: Iterable[FileTask], deletes: Iterable[EqualityDelete]) -> list[FileTask]:
    """Return the data files older than a delete of their scope."""
    newest: dict[int | None, int] = {}
    for delete in deletes:
        newest[delete.scope] = max(newest.get(delete.scope, 0), delete.sequence_number)
    everywhere = newest.get(None, 0)
    return [t for t in tasks if t.equality_deletes and t.sequence_number < max(everywhere, newest.get(t.scope, 0))]


def _by_file(hits: pa.Table) -> dict[int, bytes]:
    """Return the positions in each data file, as 64-bit integers."""
    rows = hits.select(["file", "position"]).sort_by("file")
    file, position = (rows[name].to_numpy() for name in rows.column_names)
    cuts = [0, *(np.flatnonzero(np.diff(file)) + 1).tolist(), len(file)]
    return {int(file[begin]): position[begin:end].tobytes() for begin, end in pairwise(cuts) if begin < end}


def delete_files(tasks: Iterable[FileTask]) -> dict[int, list[dict[str, Any]]]:
    """Return the position deletes and vectors of data files by number, for files whose deletes tasks can all read."""
    listing = list(tasks)
    by_number: dict[int, list[dict[str, Any]]] = {task.number: [] for task in listing if not task.others}
    for number, others in others_of(listing).items():
        if all(reaches(other.location) for other in others):
            by_number[number] = [other.for_tasks for other in others]
    return by_number
