"""The tables of a lake with their scores, as ``lakecdc.health`` has them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_provider_lakecdc.audit import Trend, health_trends
from airflow_provider_lakecdc.audit.reading import LATELY
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.lookups import Heads
from lakecdc.metadata.health import grade
from lakecdc.metadata.names import HEALTH


@dataclass(frozen=True)
class TableRow:
    """A table of the list.

    :param trend: how it has fared; None if it has not been measured lately.
    """

    name: str
    trend: Trend | None


def tables_of(lake: Lake, heads: Heads) -> dict[str, Any]:
    """What the list of tables tells, the worst first and those that nobody has measured last."""
    known = trends(lake, heads)
    rows = [TableRow(name, known.get(name)) for name in lake.tables]
    rows.sort(key=lambda row: (row.trend.latest.score if row.trend else 101.0, row.name))
    grades = [grade(row.trend.latest.score) if row.trend else "unmeasured" for row in rows]
    return {"rows": rows, "counts": {each: grades.count(each) for each in ("bad", "poor", "good", "unmeasured")}}


def trends(lake: Lake, heads: Heads) -> dict[str, Trend]:
    """How the tables of a lake's catalog have fared lately, by table."""
    catalog = lake.catalog
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - LATELY
    return heads.read(catalog, HEALTH, (lake.conn_id, since), lambda: health_trends(catalog, since))
