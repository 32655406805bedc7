"""The trigger of watermarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.tables import read_watermark
from airflow_provider_lakecdc.triggers.polling import PollingTrigger
from lakecdc.contract.fields import parse_moment


@dataclass(kw_only=True, eq=False, repr=False)
class IcebergWatermarkTrigger(PollingTrigger):
    """Fire when a table's watermark reaches an ISO-8601 moment, or cannot be read."""

    event_key: ClassVar[str] = "read_through"

    table: str
    moment: str

    def check(self, catalog: CatalogConnection) -> str | None:
        """Return the watermark if it has reached the moment."""
        moment, watermark = parse_moment(self.moment, "moment"), read_watermark(catalog, self.table)
        return watermark.isoformat() if watermark is not None and watermark >= moment else None
