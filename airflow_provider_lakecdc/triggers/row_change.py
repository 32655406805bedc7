"""The trigger of row changes, for asset watchers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from airflow_provider_lakecdc.lake.tables import MAIN, branch_snapshots, open_table, snapshot_facts

# stored for a table without a snapshot
_NOTHING = ""


@dataclass(frozen=True)
class RowChanges:
    """Changes of a branch since a snapshot, which a rollback or expiry may have removed from its history."""

    head: int
    changed: bool
    is_descendant: bool


def changes_since(catalog: CatalogConnection, table: str, seen: int | None, branch: str = MAIN) -> RowChanges | None:
    """Check a branch once, by reading one metadata file; return None if it has no snapshot.

    :param seen: the earlier head; None if there was none, so that any row is a change.
    """
    with open_table(catalog, table) as loaded:
        snapshots = list(branch_snapshots(loaded, branch)) if loaded is not None else []
    if not snapshots:
        return None
    newer = list(itertools.takewhile(lambda snapshot: snapshot.snapshot_id != seen, snapshots))
    is_descendant = seen is None or len(newer) < len(snapshots)
    changed = not is_descendant or not all(snapshot_facts(snapshot).keeps_rows for snapshot in newer)
    return RowChanges(snapshots[0].snapshot_id, changed, is_descendant)


class RowChangeTrigger(BaseEventTrigger):
    """Fire whenever the rows of a table change, for the ``AssetWatcher`` of an asset.

    It walks from the last snapshot seen to the head. Commits that only rewrite files, such as maintenance, are skipped;
    expired rows count as a change, and so do a rollback and the expiry of the last snapshot seen. That snapshot is
    stored with the asset, so nothing is missed while the triggerer is down; the first check takes the head as seen. Use
    either such a watcher or tasks with the asset as an outlet, or each change raises two events.

    The event has ``table``, ``branch``, ``snapshot_id``, ``previous_snapshot_id`` (ids as text) and
    ``is_descendant``, which is false if the previous snapshot is no longer in the branch's history. After a crash of
    the triggerer the last event may be repeated.

    :param table: ``namespace.name``.
    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``.
    :param branch: branch to watch.
    :param poll_interval: seconds between two checks.
    """

    def __init__(
        self, *, table: str, catalog_conn_id: str | None = None, branch: str = MAIN, poll_interval: float = 60.0
    ) -> None:
        super().__init__()
        self.table = table
        self.catalog_conn_id = catalog_conn_id or settings.catalog_conn_id()
        self.branch = branch
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and its arguments, all JSON."""
        names = ("table", "catalog_conn_id", "branch", "poll_interval")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check repeatedly; errors are logged and retried, since a watcher cannot report them."""
        seen = await self._stored()
        while True:
            try:
                changes = await self._check(seen)
            except Exception as error:
                self.log.warning("Cannot read %s: %s: %s", self.table, type(error).__name__, error)
            else:
                if changes is not None and changes.changed and seen is not None:
                    ids = {"snapshot_id": str(changes.head), "previous_snapshot_id": seen or None}
                    place = {"table": self.table, "branch": self.branch}
                    yield TriggerEvent({**place, **ids, "is_descendant": changes.is_descendant})
                head = str(changes.head) if changes else _NOTHING if seen is None else seen
                if head != seen:
                    seen = head
                    # after the event: a repeated event does less harm than a lost one
                    await self._store(seen)
            await asyncio.sleep(self.poll_interval)

    async def _check(self, seen: str | None) -> RowChanges | None:
        known = int(seen) if seen else None
        # in a thread, as pyiceberg blocks
        return await asyncio.to_thread(
            lambda: changes_since(get_catalog(self.catalog_conn_id), self.table, known, self.branch)
        )

    async def _stored(self) -> str | None:
        """Return the last snapshot seen; None before the first check."""
        if self.asset_state_store is None:
            return None
        try:
            stored = await self.asset_state_store.aget(self._key)
        except ValueError as error:
            # Airflow shares one trigger between assets whose watchers have the same arguments, and gives it no store
            self.log.warning("The last snapshot of %s is stored in this process only: %s", self.table, error)
            self.asset_state_store = None
            return None
        return None if stored is None else str(stored)

    async def _store(self, seen: str) -> None:
        if self.asset_state_store is not None:
            await self.asset_state_store.aset(self._key, seen)

    @property
    def _key(self) -> str:
        return f"lakecdc:{self.table}:{self.branch}"
