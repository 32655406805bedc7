"""Moments of several tables: one document names the snapshot of each, so that they are seen together or not at all."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from urllib.parse import quote

from lakecdc.object_store import conditional_writes
from lakecdc.object_store.conditional_writes import ID, parsed
from lakecdc.object_store.names import CATALOG
from lakecdc.object_store.storage import Storage


class Moments:
    """The moments of a warehouse by name."""

    def __init__(self, storage: Storage, warehouse: str) -> None:
        self._storage, self._folder = storage, f"{warehouse.rstrip('/')}/{CATALOG}/moments/"

    def read(self, name: str) -> dict[str, int] | None:
        """Return the snapshots of a moment by table, ``namespace.name``; None if there is no such moment."""
        stored = self._storage.read(self._location(name))
        return {table: int(snapshot) for table, snapshot in parsed(stored)["tables"].items()} if stored else None

    def write(self, name: str, snapshots: Mapping[str, int]) -> None:
        """Write a moment, or put it in the place of one of the same name.

        :param snapshots: by table; each is kept by a tag.
        """
        write, location = str(uuid.uuid4()), self._location(name)
        # texts: readers of JSON lose digits of large numbers
        tables = {table: str(snapshot) for table, snapshot in snapshots.items()}
        body = json.dumps({ID: write, "tables": tables}, indent=1).encode()
        while True:
            before = self._storage.read(location)
            if before is None:
                written = conditional_writes.create(self._storage, location, body, write)
            else:
                written = conditional_writes.replace(self._storage, location, body, write, before.tag)
            if written:
                return

    def _location(self, name: str) -> str:
        return f"{self._folder}{quote(name, safe='')}.json"


def as_of(text: str, snapshot: int) -> str | None:
    """Return a table's metadata with a snapshot as its newest; None if the table no longer has it.

    :param text: the metadata's JSON.
    """
    metadata = json.loads(text)
    if snapshot not in {each["snapshot-id"] for each in metadata.get("snapshots", ())}:
        return None
    refs = {"main": {"snapshot-id": snapshot, "type": "branch"}}
    return json.dumps(metadata | {"current-snapshot-id": snapshot, "refs": refs, "snapshot-log": []})
