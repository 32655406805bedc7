"""Whether the rows of a table have changed since a snapshot, told from metadata."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.lake.tables import MAIN, branch_snapshots, open_branch, snapshot_facts

if TYPE_CHECKING:
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection


@dataclass(frozen=True)
class Since:
    """What has become of a branch since a snapshot.

    :param head: its newest snapshot.
    :param changed: whether its rows may have changed.
    :param is_descendant: whether the snapshot is still in its history: not after a rollback, or once it has expired.
    """

    head: int
    changed: bool
    is_descendant: bool


def since(catalog: CatalogConnection, table: str, seen: int | None, branch: str = MAIN) -> Since | None:
    """Look at a branch once, at the price of one metadata file.

    :param table: ``namespace.name``.
    :param seen: the snapshot that was its head then; None if it had none, so that any row is a change.
    :return: None if there is no such table or branch, or no snapshot in it.
    """
    with open_branch(catalog, table, branch) as found:
        snapshots = list(branch_snapshots(found, branch)) if found is not None else []
    if not snapshots:
        return None
    newer = list(itertools.takewhile(lambda snapshot: snapshot.snapshot_id != seen, snapshots))
    is_descendant = seen is None or len(newer) < len(snapshots)
    changed = not is_descendant or not all(snapshot_facts(snapshot).keeps_rows for snapshot in newer)
    return Since(snapshots[0].snapshot_id, changed, is_descendant)
