"""Detect from metadata whether a table's rows changed since a snapshot."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.lake.tables import MAIN, branch_snapshots, open_branch, snapshot_facts

if TYPE_CHECKING:
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection


@dataclass(frozen=True)
class RowChanges:
    """Changes of a branch since a snapshot.

    :param head: the newest snapshot.
    :param changed: whether rows may have changed.
    :param is_descendant: whether the snapshot is still in the branch's history; false after a rollback or its expiry.
    """

    head: int
    changed: bool
    is_descendant: bool


def changes_since(catalog: CatalogConnection, table: str, seen: int | None, branch: str = MAIN) -> RowChanges | None:
    """Check a branch once, by reading one metadata file.

    :param table: ``namespace.name``.
    :param seen: the earlier head; None if there was none, so that any row is a change.
    :return: None if the table or branch does not exist, or the branch has no snapshot.
    """
    with open_branch(catalog, table, branch) as loaded:
        snapshots = list(branch_snapshots(loaded, branch)) if loaded is not None else []
    if not snapshots:
        return None
    newer = list(itertools.takewhile(lambda snapshot: snapshot.snapshot_id != seen, snapshots))
    is_descendant = seen is None or len(newer) < len(snapshots)
    changed = not is_descendant or not all(snapshot_facts(snapshot).keeps_rows for snapshot in newer)
    return RowChanges(snapshots[0].snapshot_id, changed, is_descendant)
