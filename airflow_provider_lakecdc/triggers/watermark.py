"""The trigger of watermarks."""

from __future__ import annotations

from typing import ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.watermark import parse_moment, read_watermark
from airflow_provider_lakecdc.triggers.polling import PollingTrigger


class IcebergWatermarkTrigger(PollingTrigger):
    """Fire when a table's watermark reaches a moment, or cannot be read.

    :param table: ``namespace.name``.
    :param catalog_conn_id: connection of type ``iceberg``.
    :param moment: ISO-8601.
    :param poll_interval: seconds between two checks.
    """

    event_key: ClassVar[str] = "read_through"

    def __init__(self, *, table: str, catalog_conn_id: str, moment: str, poll_interval: float = 60.0) -> None:
        super().__init__(catalog_conn_id, poll_interval, table=table, moment=moment)
        self.table = table
        self.moment = moment

    def check(self, catalog: CatalogConnection) -> str | None:
        """Return the watermark if it has reached the moment."""
        moment, watermark = parse_moment(self.moment), read_watermark(catalog, self.table)
        return watermark.isoformat() if watermark is not None and watermark >= moment else None
