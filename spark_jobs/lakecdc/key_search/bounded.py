"""Read in bounded memory: equality deletes of too many keys become positions before the rows are read.

If the keys that apply to a data file do not fit into a task of Iceberg's reader (:mod:`lakecdc.iceberg.reader_memory`),
the deleted rows are found as ``rewrite_delete_files`` finds them. Their positions are written to files that no commit
references, and replace the equality deletes when the data files are read. Columns, row lineage and deleted rows are the
same as with Iceberg's reader alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.bulk import java_calls
from lakecdc.iceberg.file_io import discard_folder, new_folder, storage_properties
from lakecdc.iceberg.file_tasks import FileTask, PlannedTasks
from lakecdc.iceberg.jvm import java_list, listed
from lakecdc.iceberg.live_deletes import Scopes, deletes_of_tasks, is_equality
from lakecdc.iceberg.reader_memory import fit_surely, most_keys, tasks_with_too_many_keys
from lakecdc.iceberg.scan import TaskBuilder, dropped_beyond_readers, field_types, read_staged, scan_tasks
from lakecdc.iceberg.staging import delete_file, staged_tasks
from lakecdc.key_search.match import KeySearch, SearchFacts, convert, refusal
from lakecdc.metadata.debt import doubt
from lakecdc.writer.deletes import Target, writer_of

if TYPE_CHECKING:
    from typing import TypeVar

    from pyspark.sql import DataFrame

    from lakecdc.iceberg.live_deletes import EqualityDelete
    from lakecdc.iceberg.staging import WrittenDeletes
    from lakecdc.iceberg.table import IcebergTable, Snapshot

    Table = TypeVar("Table", bound=IcebergTable)

log = logging.getLogger(__name__)


@contextmanager
def bounded_reads(table: Table) -> Iterator[Table]:
    """Yield the table with :meth:`IcebergTable.read` in bounded memory; its frames are valid inside the context."""
    known: dict[int, DataFrame | None] = {}
    with ExitStack() as stack:

        def read(snapshot: Snapshot) -> DataFrame | None:
            """Return all rows with the table's current columns, or None if Iceberg's reader can be used."""
            # each snapshot is searched once
            if snapshot.id not in known and not fit_surely(snapshot, most_keys(table.spark)):
                tasks = scan_tasks(table, snapshot.id)
                within = stack.enter_context(bounded_tasks(table, tasks))
                fits = within is tasks
                known[snapshot.id] = (
                    None if fits else read_staged(table, stack.enter_context(staged_tasks(table, within)))
                )
            return known.get(snapshot.id)

        bounded = copy(table)
        bounded.reader = read
        yield bounded


@contextmanager
def bounded_tasks(
    table: IcebergTable, tasks: Any, snapshot: Snapshot | None = None, most: int | None = None
) -> Iterator[Any]:
    """Yield scan tasks, in the same order, that read the same rows in bounded memory inside the context.

    :param tasks: list or Java list of scan tasks of whole data files, with the deletes that apply; yielded unchanged if
        these fit.
    :param snapshot: the tasks' snapshot, if known: its summary may save counting.
    :param most: maximum number of keys of a task; 0 replaces all equality deletes that can be searched for. Default: as
        many as fit into memory.
    """
    most = most_keys(table.spark) if most is None else most
    if snapshot is not None and fit_surely(snapshot, most):
        yield tasks
        return
    given = java_list(table.spark, tasks)
    places = tasks_with_too_many_keys(table.spark, given, most)
    why_not = refusal(table) if places else None
    if why_not:
        log.warning("%s: reading it takes the memory of all its deleted keys: %s", table.name, why_not)
    if why_not or not places:
        yield tasks
        return
    log.info("%s: finding the deleted rows of %d of %d data files first", table.name, len(places), given.size())
    folder = new_folder(table, "reads")
    try:
        bounded = listed(given)
        for place, task in zip(places, _resolved(table, [bounded[place] for place in places], folder), strict=True):
            bounded[place] = task
        yield bounded
    finally:
        discard_folder(table, folder)


def _resolved(table: IcebergTable, tasks: Sequence[Any], folder: str) -> Iterator[Any]:
    """Yield tasks with positions in place of the equality deletes that a search can match."""
    scopes, java = Scopes(table), java_list(table.spark, tasks)
    deletes = _searchable(table, deletes_of_tasks(table, tasks, scopes))
    planned = PlannedTasks(table, deletes)
    planned.keep(java, 0)
    files = []
    for number, (*known, applying, equality) in enumerate(java_calls(table.spark).rows(java, *planned.facts(scopes))):
        rest = [applying - equality, equality, False, False, planned]
        files.append(FileTask(number, *known, *rest))
    search, builder = KeySearch(tuple(deletes), tuple(files)), TaskBuilder(table)
    target = Target(folder, storage_properties(table), {file.number: file.location for file in files})
    facts, written = SearchFacts(), {}
    if deletes:
        written = {w.file_number: w for w in convert(table, search, target, writer_of(table), facts)}
        facts.log_iceberg(table)
    for file in files:
        yield builder.task(file.java, _deletes_of(table, file, written.get(file.number)))


def _searchable(table: IcebergTable, deletes: Sequence[EqualityDelete]) -> list[EqualityDelete]:
    """Return the deletes whose keys a search matches as Iceberg's reader does."""
    ids = {field_id for delete in deletes for field_id in delete.field_ids}
    certain = {field_id for field_id, kind in field_types(table, ids).items() if not doubt(kind)}
    certain -= dropped_beyond_readers(table, ids).keys()
    return [delete for delete in deletes if certain.issuperset(delete.field_ids)]


def _deletes_of(table: IcebergTable, file: FileTask, written: WrittenDeletes | None) -> list[Any]:
    others = [file.other(place) for place in range(file.others)]
    if written is None:
        return others
    if table.format_version >= 3:
        # the new vector includes the old vector and the position deletes: readers use only one
        others = [other for other in others if is_equality(other)]
    return [*others, delete_file(table, file.java, written)]
