"""Waiting for a table's watermark in the triggerer."""

from __future__ import annotations

from typing import ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.watermark import parse_moment, read_watermark
from airflow_provider_lakecdc.triggers.polling import PollingTrigger


class IcebergWatermarkTrigger(PollingTrigger):
    """Fires when a table's ingested source time has reached a moment, or when it cannot be read.

    :param table: ``namespace.name``.
    :param catalog_conn_id: connection of type ``iceberg``.
    :param moment: ISO-8601.
    :param poll_interval: seconds between two looks at the table.
    """

    found_key: ClassVar[str] = "read_through"

    def __init__(self, *, table: str, catalog_conn_id: str, moment: str, poll_interval: float = 60.0) -> None:
        super().__init__(catalog_conn_id, poll_interval, table=table, moment=moment)
        self.table = table
        self.moment = moment

    def look(self, catalog: CatalogConnection) -> str | None:
        """The source time that the table has reached, if that is late enough."""
        wanted, found = parse_moment(self.moment), read_watermark(catalog, self.table)
        return found.isoformat() if found is not None and found >= wanted else None
