"""Writers of a table's equality deletes: only ingestion's fence knows where rows have moved to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.iceberg.live_deletes import equality_deletes
from lakecdc.metadata import names

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable, Snapshot

_ADDED, _TOTAL = "added-equality-deletes", "total-equality-deletes"


def foreign_deletes(table: IcebergTable, start: Snapshot) -> str | None:
    """Describe equality deletes that another writer than lakecdc adds or may add to a table.

    Such a writer stages its deletes for the partition specs that it knows. If rows move to another one before it
    commits, they stay beside their replacements, and nothing would stop its commit.

    :param start: the newest snapshot to check.
    :return: None if only lakecdc's own are known.
    """
    numbers, snapshot = set[int](), start
    while True:
        if int(snapshot.summary.get(_ADDED, 0)) and names.COMMIT_ID not in snapshot.summary:
            return f"snapshot {snapshot.id} has equality deletes that another writer added"
        numbers.add(snapshot.sequence_number)
        parent = table.snapshot(snapshot.parent_id) if snapshot.parent_id is not None else None
        if parent is None:
            break
        snapshot = parent
    if names.LAYOUT in table.properties or start.summary.get(_TOTAL) == "0":
        return None
    if any(delete.sequence_number not in numbers for delete in equality_deletes(table, start.id)):
        return "the table was not created by lakecdc and has equality deletes of expired snapshots"
    return None
