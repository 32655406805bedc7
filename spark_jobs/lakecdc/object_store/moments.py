"""Moments of several tables: one document names the snapshot of each, so that readers see all of them or none.

A table is part of a moment while its tag keeps the snapshot. So a moment ends when any client drops its tags, and only
its document remains to be removed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from urllib.parse import quote

from lakecdc.metadata.names import moment_tag
from lakecdc.object_store import conditional_writes
from lakecdc.object_store.conditional_writes import ID, parsed
from lakecdc.object_store.names import CATALOG
from lakecdc.object_store.storage import Storage, Stored


class Moments:
    """The moments of a warehouse by name."""

    def __init__(self, storage: Storage, warehouse: str) -> None:
        self._storage, self._folder = storage, f"{warehouse.rstrip('/')}/{CATALOG}/moments/"

    def read(self, name: str) -> dict[str, int] | None:
        """Return the snapshots of a moment by table, ``namespace.name``; None if it does not exist."""
        stored = self._storage.read(self._location(name))
        return (_snapshots(stored) or None) if stored else None

    def write(self, name: str, snapshots: Mapping[str, int]) -> None:
        """Write a moment, replacing one of the same name.

        :param snapshots: by table; each is kept by a tag.
        """
        self._change(name, lambda _: snapshots)

    def keep(self, name: str, is_kept: Callable[[str, int], bool]) -> None:
        """Remove tables from a moment that no longer keep their snapshot; remove the moment with its last table."""
        self._change(name, lambda before: {table: number for table, number in before.items() if is_kept(table, number)})

    def _change(self, name: str, change: Callable[[Mapping[str, int]], Mapping[str, int]]) -> None:
        write, location = str(uuid.uuid4()), self._location(name)
        while True:
            before = self._storage.read(location)
            former = _snapshots(before) if before else {}
            if (snapshots := change(former)) == former:
                return
            # texts: readers of JSON lose digits of large numbers
            tables = {table: str(snapshot) for table, snapshot in snapshots.items()}
            body = json.dumps({ID: write, "tables": tables}, indent=1).encode()
            if before is None:
                written = conditional_writes.create(self._storage, location, body, write)
            else:
                written = conditional_writes.replace(self._storage, location, body, write, before.tag)
            if written:
                return

    def _location(self, name: str) -> str:
        return f"{self._folder}{quote(name, safe='')}.json"


def _snapshots(stored: Stored) -> dict[str, int]:
    return {table: int(snapshot) for table, snapshot in parsed(stored)["tables"].items()}


def refs_of(text: str) -> dict[str, int]:
    """Return the snapshots of a table's tags and branches by name."""
    return {name: ref["snapshot-id"] for name, ref in json.loads(text).get("refs", {}).items()}


def as_of(text: str, moment: str, snapshot: int) -> str | None:
    """Return a table's metadata with the snapshot of a moment as its newest; None if no tag keeps it."""
    if refs_of(text).get(moment_tag(moment)) != snapshot:
        return None
    metadata = json.loads(text)
    refs = {"main": {"snapshot-id": snapshot, "type": "branch"}}
    return json.dumps(metadata | {"current-snapshot-id": snapshot, "refs": refs, "snapshot-log": []})
