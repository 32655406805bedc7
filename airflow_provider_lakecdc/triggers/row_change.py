"""Watching a table for changes of its rows, for assets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.hooks.catalog import aget_catalog
from airflow_provider_lakecdc.lake.row_changes import Since, since
from airflow_provider_lakecdc.lake.tables import MAIN

# stored of a table that had no snapshot yet
_NOTHING = ""


class RowChangeTrigger(BaseEventTrigger):
    """Fires whenever the rows of a table have changed, for the ``AssetWatcher`` of an asset.

    It walks from the last snapshot that it has seen to the head. Commits that only move rows to other files, as
    maintenance does, are passed over; expired rows are a change, and so are a rollback, and a last snapshot that has
    expired meanwhile. What it has seen is kept with the asset, so that nothing is missed while the triggerer is down;
    at its very first look it takes the head as seen. An asset has either such a watcher or tasks with it as an outlet,
    or each change would be two events.

    The event has ``table``, ``branch``, ``snapshot_id``, ``previous_snapshot_id`` (ids as text) and
    ``is_descendant``, which is false if the previous snapshot is not in the branch's history any more. After a crash of
    the triggerer the last event may come twice.

    :param table: ``namespace.name``.
    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``.
    :param branch: branch to watch.
    :param poll_interval: seconds between two looks.
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
        """Path of the class and its arguments, all JSON."""
        names = ("table", "catalog_conn_id", "branch", "poll_interval")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look again and again; a catalog that does not answer is asked again, as a watcher has nobody to tell."""
        seen = await self._stored()
        while True:
            try:
                found = await self._look(seen)
            except Exception as error:
                self.log.warning("%s cannot be looked at: %s: %s", self.table, type(error).__name__, error)
            else:
                if found is not None and found.changed and seen is not None:
                    yield TriggerEvent(self._payload(found, seen))
                head = str(found.head) if found else _NOTHING if seen is None else seen
                if head != seen:
                    seen = head
                    # behind the event: one that comes twice does less harm than one that is lost
                    await self._store(seen)
            await asyncio.sleep(self.poll_interval)

    async def _look(self, seen: str | None) -> Since | None:
        catalog = await aget_catalog(self.catalog_conn_id)
        return await asyncio.to_thread(since, catalog, self.table, int(seen) if seen else None, self.branch)

    def _payload(self, found: Since, seen: str) -> dict[str, Any]:
        return {
            "table": self.table,
            "branch": self.branch,
            "snapshot_id": str(found.head),
            "previous_snapshot_id": seen or None,
            "is_descendant": found.is_descendant,
        }

    async def _stored(self) -> str | None:
        """The last snapshot seen; None before the first look."""
        if self.asset_state_store is None:
            return None
        try:
            found = await self.asset_state_store.aget(self._key)
        except ValueError as error:
            # Airflow gives assets whose watchers have the same arguments one trigger, and then keeps nothing for it
            self.log.warning("What was seen of %s is kept by this process alone: %s", self.table, error)
            self.asset_state_store = None
            return None
        return None if found is None else str(found)

    async def _store(self, seen: str) -> None:
        if self.asset_state_store is not None:
            await self.asset_state_store.aset(self._key, seen)

    @property
    def _key(self) -> str:
        return f"lakecdc:{self.table}:{self.branch}"
