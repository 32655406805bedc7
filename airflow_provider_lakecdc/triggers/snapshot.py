"""Waiting in the triggerer until a consumer has something to read."""

from __future__ import annotations

from typing import ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.consumers import unread
from airflow_provider_lakecdc.triggers.polling import PollingTrigger


class SnapshotTrigger(PollingTrigger):
    """Fires when a table has snapshots that a consumer has not read, or when it has to stop.

    :param table: ``namespace.name``.
    :param consumer: its name; it is registered.
    :param catalog_conn_id: connection of type ``iceberg``.
    :param poll_interval: seconds between two looks at the table.
    """

    found_key: ClassVar[str] = "snapshots"

    def __init__(self, *, table: str, consumer: str, catalog_conn_id: str, poll_interval: float = 60.0) -> None:
        super().__init__(catalog_conn_id, poll_interval, table=table, consumer=consumer)
        self.table = table
        self.consumer = consumer

    def look(self, catalog: CatalogConnection) -> dict[str, str] | None:
        """The last snapshot read and the head; ids are text, because not every reader of JSON has 64 bits."""
        found = unread(catalog, self.table, self.consumer)
        return None if found is None else {"read": str(found[0]), "head": str(found[1])}
