"""The trigger of unread snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.consumers import unread
from airflow_provider_lakecdc.triggers.polling import PollingTrigger


@dataclass(kw_only=True, eq=False, repr=False)
class SnapshotTrigger(PollingTrigger):
    """Fire when a table has snapshots that a registered consumer has not read, or when the consumer cannot continue."""

    event_key: ClassVar[str] = "snapshots"
    goal: ClassVar[str] = "snapshots of {table} that {consumer} has not read"

    table: str
    consumer: str

    def check(self, catalog: CatalogConnection) -> dict[str, str] | None:
        """Return the ids of the last snapshot read and of the head, as text for JSON parsers without 64-bit numbers."""
        snapshots = unread(catalog, self.table, self.consumer)
        return None if snapshots is None else {"read": str(snapshots[0]), "head": str(snapshots[1])}
