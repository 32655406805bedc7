"""The deletes of one commit: staged equality deletes, or the positions of the rows that they match."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from lakecdc.contract.errors import ConflictError
from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.expressions import rows_not_below
from lakecdc.iceberg.fence import KnownHead
from lakecdc.iceberg.lease import hold_if_free
from lakecdc.iceberg.staging import discard
from lakecdc.key_search.resolve import Resolution
from lakecdc.key_search.row_ids import same_rows, sent_to_tasks
from lakecdc.metadata import names

if TYPE_CHECKING:
    from typing import Any

    import pyarrow as pa

    from lakecdc.iceberg.table import IcebergTable, Snapshot
    from lakecdc.ingest.apply.publish import Commit, Staged

log = logging.getLogger(__name__)

#: searches for the rows to delete per commit, and searches before the commit blocks lakecdc's own rewrites
_SEARCHES, _WITHOUT_LEASE = 10, 4


class StagedBeforeError(ConflictError):
    """Others have committed since the changes were staged or checked; they must be staged again."""


class Deletes:
    """The deletes of one commit.

    :ivar truncate: Iceberg expression of rows that the commit removes first; None for none.
    :ivar base: the head that the deletes are for; None for an empty table, or if it is irrelevant.
    """

    def __init__(self, table: IcebergTable, commit: Commit, entries: Mapping[str, str]) -> None:
        self._table, self._commit, self._entries = table, commit, entries
        self.truncate: Any | None = commit.filter(table)
        self.base: Snapshot | None = None
        self._resolution: Resolution | None = None
        # keys and ids of the replaced rows when the new ones were staged
        self._carried_on: list[pa.Table] = []

    def find(self, staged: Staged, *, checked: bool) -> RowChanges:
        """Return the changes to commit, for the table's head.

        :param checked: whether the changes are checked against that head before the commit.
        :raises OutOfReachError: rows are in a partition spec without staged deletes.
        """
        resolves, stage_rows = self._commit.resolves and bool(staged.delete_files), self._commit.stage_rows
        if resolves or checked:
            self.base = self._table.refresh().head()
        if resolves:
            with_rows = stage_rows is not None
            truncated = self._commit.truncate_order
            where = rows_not_below(self._table, ORDER_COLUMN, truncated) if truncated else None
            self._resolution = Resolution(
                self._table, staged.delete_files, where, with_rows=with_rows, known=self._commit.places
            )
            self._search()
        if stage_rows is not None:
            resolution = self._resolution
            self._carried_on = resolution.rows if resolution else []
            with sent_to_tasks(
                self._table, resolution.columns if resolution else {}, resolution.rows if resolution else ()
            ) as ids:
                stage_rows(staged, ids)
        return self._changes(staged)

    def publish(self, staged: Staged, then: Callable[[Any], None] | None) -> Snapshot:
        """Commit the changes; search again if others have committed meanwhile, unless the changes were checked.

        :param then: further work in the transaction, only of checked changes.
        :raises ConflictError: the fence refused, or others committed during each search.
        :raises StagedBeforeError: the changes do not fit commits of others.
        """
        fence, resolution = self._commit.fence, self._resolution
        with ExitStack() as lease:
            for searches in range(1, _SEARCHES + 1):
                if resolution is not None:
                    fence.head = KnownHead(self.base.id if self.base else None, truncated=self.truncate is not None)
                try:
                    snapshot = self._append(staged, then)
                    break
                except ConflictError as error:
                    head = self._table.refresh().head()
                    if (
                        resolution is None
                        or fence.refusal == "state changed"
                        or head == self.base
                        or searches == _SEARCHES
                    ):
                        raise
                    if then is not None:
                        raise StagedBeforeError(error.message, table=self._table.name, hint=error.hint) from error
                    log.info("%s: others have committed, rows to delete are searched again", self._table.name)
                    if searches == _WITHOUT_LEASE:
                        lease.enter_context(hold_if_free(self._table, "ingest"))
                        head = self._table.refresh().head()
                    self.base = head
                    self._search()
                    self._check_ids(resolution)
        if resolution is not None:
            resolution.discard(committed=True)
        return snapshot

    def _check_ids(self, resolution: Resolution) -> None:
        if resolution.with_rows and not same_rows(resolution.rows, self._carried_on):
            message = "Other writers have changed rows that the batch replaces."
            raise StagedBeforeError(message, table=self._table.name, hint="Nothing was published; run again.")

    def _search(self) -> None:
        assert self._resolution is not None
        # replacing all rows needs no search
        self._resolution.search(None if self._commit.replaces else self.base)

    def _append(self, staged: Staged, then: Callable[[Any], None] | None) -> Snapshot:
        changes = self._changes(staged)
        fence, tag = self._commit.fence, names.POSITIONS_TAG
        return append_changes(self._table, changes, fence, truncate=self.truncate, tag=tag, then=then)

    def _changes(self, staged: Staged) -> RowChanges:
        resolution = self._resolution
        if resolution is None:
            return RowChanges(staged.data_files, staged.delete_files, summary=self._entries)
        return resolution.changes(staged.data_files, self._entries)

    def added(self, staged: Staged) -> list[Any]:
        """Return the Java delete files that were committed."""
        return staged.delete_files if self._resolution is None else self._resolution.added

    @property
    def numbers(self) -> dict[str, int]:
        """Return the numbers of the search, for the report; empty without one."""
        resolution = self._resolution
        if resolution is None:
            return {}
        return {
            "searches": resolution.searches,
            "data_files_searched": resolution.searched,
            "positions": resolution.positions,
        }

    def discard(self, staged: Staged) -> None:
        """Delete all files, none of which was committed."""
        discard(self._table, staged.files)
        if self._resolution is not None:
            self._resolution.discard(committed=False)
