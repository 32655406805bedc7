"""The trigger of unread snapshots."""

from __future__ import annotations

from typing import ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.consumers import unread
from airflow_provider_lakecdc.triggers.polling import PollingTrigger


class SnapshotTrigger(PollingTrigger):
    """Fire when a table has snapshots that a consumer has not read, or when the consumer cannot continue.

    :param table: ``namespace.name``.
    :param consumer: name of a registered consumer.
    :param catalog_conn_id: connection of type ``iceberg``.
    :param poll_interval: seconds between two checks.
    """

    event_key: ClassVar[str] = "snapshots"

    def __init__(self, *, table: str, consumer: str, catalog_conn_id: str, poll_interval: float = 60.0) -> None:
        super().__init__(catalog_conn_id, poll_interval, table=table, consumer=consumer)
        self.table = table
        self.consumer = consumer

    def check(self, catalog: CatalogConnection) -> dict[str, str] | None:
        """Return the ids of the last snapshot read and of the head, as text for JSON parsers without 64-bit numbers."""
        snapshots = unread(catalog, self.table, self.consumer)
        return None if snapshots is None else {"read": str(snapshots[0]), "head": str(snapshots[1])}
