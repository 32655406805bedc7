"""Resolve a batch's keys before its commit: staged equality deletes become positions in the table's files.

The keys of a batch are searched for in the data files of one snapshot that may contain them. A file with hits gets one
position-delete file (format v2) or deletion vector (v3) with all its deleted positions, which replaces its earlier one;
position deletes of a whole partition stay. If others commit meanwhile, only files that are new, or whose deletes have
changed, are searched again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.iceberg.commit import RowChanges
from lakecdc.iceberg.expressions import rows_within
from lakecdc.iceberg.file_io import discard_files, folder_of_work, storage_properties
from lakecdc.iceberg.file_tasks import OtherDelete, others_of, tasks_within_reach
from lakecdc.iceberg.jvm import listed
from lakecdc.iceberg.live_deletes import Scopes, described_deletes, equality_deletes_at
from lakecdc.iceberg.staging import delete_file
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.key_search.keys import FileState, states_of
from lakecdc.key_search.match import KeySearch, SearchFacts, convert
from lakecdc.key_search.places import Places
from lakecdc.reader.projection import ReadColumn, read_columns
from lakecdc.writer.deletes import Target, writer_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Hits:
    """Hits of a search in one data file.

    :param added: the Java ``DeleteFile`` of all its deleted positions.
    :param superseded: Java ``DeleteFile`` objects that ``added`` replaces.
    :param positions: number of newly deleted rows.
    """

    added: Any
    superseded: Sequence[Any]
    positions: int


@dataclass
class Resolution:
    """The keys of one batch, and their hits so far.

    :param keys: staged equality deletes of one key, Java ``DeleteFile`` objects; they are never committed.
    :param where: Iceberg expression of the rows that the commit does not remove before; None if it removes none.
    :param with_rows: collect the keys and row ids of the hits.
    :param known: places of rows that the batch has looked up.
    :ivar searches: how often the table's files were planned.
    :ivar searched: number of searched data files.
    """

    table: IcebergTable
    keys: Sequence[Any]
    where: Any | None = None
    with_rows: bool = False
    known: Places | None = None
    searches: int = 0
    searched: int = 0
    _known: dict[FileState, _Hits | None] = field(default_factory=dict)
    _rows: dict[FileState, list[pa.Table]] = field(default_factory=dict)
    _current: list[FileState] = field(default_factory=list)

    def search(self, snapshot: Snapshot | None) -> None:
        """Search the data files of a snapshot, except files already searched in the same state.

        :raises OutOfReachError: rows are in a partition spec without staged keys.
        """
        self.searches += 1
        self._current = []
        if snapshot is None or not self.keys:
            return
        scopes = Scopes(self.table)
        staged = described_deletes(self.table, self.keys, scopes)
        where = rows_within(self.table, self.where, self.keys)
        live = equality_deletes_at(self.table, snapshot, scopes)
        tasks = list(tasks_within_reach(self.table, snapshot, staged, scopes, where, live))
        others, states = others_of(tasks), states_of(tasks)
        self._current = list(states.values())
        unknown = [task for task in tasks if states[task.number] not in self._known]
        if not unknown:
            return
        facts = SearchFacts([] if self.with_rows else None)
        known = self.known if self.known and self.known.key == staged[0].field_ids else None
        seen = known.seen_in({task.number: states[task.number] for task in unknown}) if known else None
        hits = self._find(KeySearch(tuple(staged), tuple(unknown), seen=seen), others, facts)
        self._known |= {states[task.number]: hits.get(task.number) for task in unknown}
        facts.log_iceberg(self.table)
        self.searched += facts.searched
        of_rows = [*(f"d{place}" for place in range(len(staged[0].field_ids))), "row_id"]
        for table in facts.rows or ():
            for number in table["file"].unique().to_pylist():
                rows = table.filter(pc.equal(table["file"], number))
                self._rows.setdefault(states[number], []).append(rows.select(of_rows))
        log.info("%s: searched %d of %d data files for keys", self.table.name, facts.searched, len(tasks))

    @property
    def rows(self) -> list[pa.Table]:
        """Return tables of the hits' keys, ``d0`` …, and ``row_id``."""
        return [rows for state in self._current for rows in self._rows.get(state, ())]

    def _find(
        self, search: KeySearch, others: dict[int, tuple[OtherDelete, ...]], facts: SearchFacts
    ) -> dict[int, _Hits]:
        table, by_number = self.table, {task.number: task for task in search.tasks}
        with folder_of_work(table, "deletes") as folder:
            locations = {number: task.location for number, task in by_number.items()}
            target = Target(folder, storage_properties(table), locations)
            all_written = convert(table, search, target, writer_of(table), facts)
        hits = {}
        for written in all_written:
            task = by_number[written.file_number]
            of_file = others.get(task.number, ())
            superseded = [task.other(other.place) for other in of_file if other.file_scoped]
            hits[task.number] = _Hits(delete_file(table, task.java, written), superseded, written.added)
        return hits

    @property
    def columns(self) -> dict[str, ReadColumn]:
        """Return the columns of the key by name, in the order of :attr:`rows`."""
        ids = set(listed(self.keys[0].equalityFieldIds()))
        of_key = [column for column in read_columns(self.table.schema_fields) if column.id in ids]
        return {column.name: column for column in sorted(of_key, key=lambda column: column.id)}

    def changes(self, rows: Sequence[Any], summary: Mapping[str, str]) -> RowChanges:
        """Return the changes to commit with the batch's new data files."""
        hits = self._hits
        # each once
        removed = {(str(d.location()), d.contentOffset()): d for each in hits.values() for d in each.superseded}
        return RowChanges(rows, self.added, removed_deletes=[*removed.values()], summary=summary, deleted_from=[*hits])

    @property
    def _hits(self) -> dict[str, _Hits]:
        """Return the hits by the location of their data file."""
        return {state[0]: hits for state in self._current if (hits := self._known[state]) is not None}

    @property
    def added(self) -> list[Any]:
        """Return the Java delete files to add."""
        return [hits.added for hits in self._hits.values()]

    @property
    def positions(self) -> int:
        """Return the number of newly deleted rows."""
        return sum(hits.positions for hits in self._hits.values())

    def discard(self, *, committed: bool) -> None:
        """Delete the keys' files, and the delete files that were not committed."""
        needed = {str(file.location()) for file in self.added} if committed else set[str]()
        written = {str(hits.added.location()) for hits in self._known.values() if hits is not None}
        keys = {str(file.location()) for file in self.keys}
        discard_files(self.table, sorted((written | keys) - needed))
