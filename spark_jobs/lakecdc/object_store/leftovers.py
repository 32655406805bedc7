"""Removal of old objects of a warehouse: versions of purged tables, and bodies without a row.

A number stays used while a writer may still hold a version of the table. After thirty days by the storage's own clock
none can, because a commit that late writes nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lakecdc.object_store import conditional_writes
from lakecdc.object_store.conditional_writes import ID, parsed
from lakecdc.object_store.names import CATALOG
from lakecdc.object_store.row_storage import RowStorage
from lakecdc.object_store.storage import Storage
from lakecdc.object_store.versions import OLDEST_STUB, Dropped, Versions, number_of


class Leftovers:
    """The leftovers of a warehouse."""

    def __init__(self, storage: Storage, warehouse: str) -> None:
        self._storage, self._folder = storage, f"{warehouse.rstrip('/')}/{CATALOG}/purged/"

    def record(self, location: str) -> None:
        """Record that a dropped table is purged, before its first file is deleted."""
        self._write(f"{uuid.uuid4()}.json", {"location": location, "last": self._last(location)})

    def remove(self, bodies_before: datetime) -> int:
        """Remove the remaining objects of tables that were purged more than thirty days ago; return their number.

        :param bodies_before: bodies without a row that are older than this are removed too (``commit_service``).
        """
        bodies = self._storage.remove_bodies(bodies_before) if isinstance(self._storage, RowStorage) else 0
        return bodies + self._remove_purged()

    def _remove_purged(self) -> int:
        records = list(self._storage.list(self._folder))
        removed, before = 0, self._now() - OLDEST_STUB if records else datetime.now(UTC)
        for record in records:
            stored = self._storage.read(record.location) if record.modified < before else None
            if stored is None:
                continue
            purged = parsed(stored)
            location, last = purged.get("location"), purged.get("last")
            # otherwise everything is gone, or the folder has, or had, a later table
            if location and last and self._last(location) == last:
                removed += self._remove(location)
            self._storage.delete(record.location)
        return removed

    def _last(self, location: str) -> str | None:
        """Return the id of the version that dropped a table; None if it is not dropped."""
        versions = Versions(self._storage, location)
        head = versions.head()
        stored = self._storage.read(versions.location_of(head.number)) if isinstance(head, Dropped) else None
        return parsed(stored).get(ID) if stored is not None else None

    def _remove(self, location: str) -> int:
        """Remove the objects in the folder of a purged table, the version that dropped it last; return their number."""
        versions = Versions(self._storage, location)
        files = [each.location for each in self._storage.list(f"{location}/")]
        if any((number := number_of(each)) and each != versions.location_of(number) for each in files):
            # the folder of another table is in this one
            return 0
        for each in sorted(files, key=lambda each: number_of(each) or 0):
            self._storage.delete(each)
        return len(files)

    def _now(self) -> datetime:
        """Return the time by the storage's clock, because this machine's may be ahead."""
        location = self._write(f"clock-{uuid.uuid4()}", {})
        try:
            return next(self._storage.list(location)).modified
        finally:
            self._storage.delete(location)

    def _write(self, name: str, members: Mapping[str, Any]) -> str:
        write = str(uuid.uuid4())
        body = json.dumps({ID: write, **members}).encode()
        conditional_writes.create(self._storage, f"{self._folder}{name}", body, write)
        return f"{self._folder}{name}"
