"""Snapshots, tags, branches and properties of a table at one time, read from Java in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakecdc.iceberg.reachability import newest_metadata
from lakecdc.iceberg.refs import Ref
from lakecdc.iceberg.table import MAIN, IcebergTable, Snapshot


@dataclass(frozen=True)
class History:
    """A table's metadata at one time, as Iceberg writes it in JSON, and parsed."""

    document: Mapping[str, Any]
    snapshots: Mapping[int, Snapshot]
    refs: Mapping[str, Ref]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> History:
        """Parse a metadata document."""
        snapshots = [Snapshot.of(each) for each in document.get("snapshots", [])]
        refs = {
            name: Ref(ref["snapshot-id"], ref["type"], ref.get("max-ref-age-ms"))
            for name, ref in document.get("refs", {}).items()
        }
        return cls(document, {snapshot.id: snapshot for snapshot in snapshots}, refs)

    @property
    def properties(self) -> dict[str, str]:
        return dict(self.document.get("properties", {}))

    @property
    def location(self) -> str:
        """Return the location of the metadata file."""
        return str(self.document["metadata-log"][-1]["metadata-file"])

    def ancestors(self, branch: str = MAIN) -> list[Snapshot]:
        """Return the snapshots of a branch from its head towards the root, as far as metadata still has them."""
        chain, ref = list[Snapshot](), self.refs.get(branch)
        snapshot = self.snapshots.get(ref.snapshot_id) if ref else None
        while snapshot is not None:
            chain.append(snapshot)
            snapshot = self.snapshots.get(snapshot.parent_id) if snapshot.parent_id is not None else None
        return chain


def read_history(table: IcebergTable) -> History:
    """Read the table's current history from its catalog.

    :raises ConflictError: the table was dropped or replaced.
    """
    return History.of(newest_metadata(table))


def down_to(ancestors: list[Snapshot], ids: Iterable[int]) -> list[Snapshot]:
    """Return the head and its ancestors down to the oldest of the given ones; empty if none is an ancestor."""
    given = set(ids)
    last = max((number for number, s in enumerate(ancestors) if s.id in given), default=-1)
    return ancestors[: last + 1]
