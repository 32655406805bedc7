"""The trigger of watermarks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.tables import read_watermark
from airflow_provider_lakecdc.triggers.polling import PollingTrigger
from lakecdc.contract.fields import parse_moment
from lakecdc.metadata.freshness import judge


@dataclass(kw_only=True, eq=False, repr=False)
class IcebergWatermarkTrigger(PollingTrigger):
    """Fire when a table's watermark reaches a moment or is fresh, or cannot be read.

    :param moment: ISO-8601; not used with ``freshness``.
    :param freshness: highest age of the watermark, such as ``30m``.
    """

    event_key: ClassVar[str] = "read_through"
    goal: ClassVar[str] = "the watermark of {table}, moment {moment}, freshness {freshness}"

    table: str
    moment: str | None = None
    freshness: str | None = None

    def check(self, catalog: CatalogConnection) -> str | None:
        """Return the watermark if it has reached the moment, or is fresh."""
        moment = None if self.freshness else parse_moment(self.moment or "", "moment")
        if (watermark := read_watermark(catalog, self.table)) is None:
            return None
        text = watermark.isoformat()
        if moment is None:
            is_reached = judge(self.freshness or "", text, datetime.now(UTC)).is_kept
        else:
            is_reached = watermark >= moment
        return text if is_reached else None
