"""The tables of a lake with their scores, from ``lakecdc.health``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_provider_lakecdc.audit import Trend, health_trends
from airflow_provider_lakecdc.audit.reading import LATELY
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.lookups import MetadataCache
from lakecdc.metadata.health import grade
from lakecdc.metadata.names import HEALTH


@dataclass(frozen=True)
class TableRow:
    """A row of the list of tables.

    :param trend: its health over time; None if not measured recently.
    """

    name: str
    trend: Trend | None


def tables_of(lake: Lake, heads: MetadataCache) -> dict[str, Any]:
    """Return the template's values of the tables, lowest score first, unmeasured tables last."""
    known = trends(lake, heads)
    rows = [TableRow(name, known.get(name)) for name in lake.tables]
    rows.sort(key=lambda row: (row.trend.latest.score if row.trend else 101.0, row.name))
    grades = [grade(row.trend.latest.score) if row.trend else "unmeasured" for row in rows]
    return {"rows": rows, "counts": {each: grades.count(each) for each in ("bad", "poor", "good", "unmeasured")}}


def trends(lake: Lake, heads: MetadataCache) -> dict[str, Trend]:
    """Return the recent health over time of a catalog's tables."""
    catalog = lake.catalog
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - LATELY
    return heads.read(catalog, HEALTH, (lake.conn_id, since), lambda: health_trends(catalog, since))
