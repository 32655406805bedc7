"""Recent ingestion of each table: from ``lakecdc.audit``, with lag and freshness as of now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_lakecdc.audit import AuditRow, history
from airflow_provider_lakecdc.page.history import Intake, report_link
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.lookups import MetadataCache
from airflow_provider_lakecdc.page.tables import read_moments, trends
from lakecdc.metadata.names import AUDIT

HOURS = 24
_JOB = "ingest"
# audit rows read at most; the newest then cover fewer hours
_MOST_ROWS = 20_000


@dataclass(frozen=True)
class FedTable:
    """Ingestion into one table in the last hours.

    :param last: its last run.
    :param begin: of the first of the hours.
    :param total: of all runs.
    :param events_by_hour: by the hour in which runs ended, oldest first.
    """

    name: str
    last: AuditRow
    begin: datetime
    runs: int
    failed: int
    total: Intake
    events_by_hour: Sequence[int]

    @classmethod
    def of(cls, name: str, rows: Sequence[AuditRow], begin: datetime) -> FedTable:
        """Sum up a table's rows, newest first."""
        hours = [0] * HOURS
        for row in rows:
            hour = int((row.finished_at - begin).total_seconds() // 3600)
            hours[min(hour, HOURS - 1)] += Intake.of(row.metrics).events
        total = sum((Intake.of(row.metrics) for row in rows), Intake())
        failed = sum(row.outcome == "failed" for row in rows)
        return cls(name, rows[0], begin, len(rows), failed, total, hours)

    @property
    def hours(self) -> list[str]:
        """Return the hours as labels, in UTC."""
        return [f"{self.begin + timedelta(hours=number):%H}:00" for number in range(HOURS)]


def ingestion_of(lake: Lake, table: str | None, heads: MetadataCache) -> dict[str, Any]:
    """Return the template's values of the tables that were fed lately: late and failed ones first, then the busiest.

    :param table: ``namespace.name``; None means all visible tables.
    :raises InputError: the table is hidden.
    """
    if table is not None:
        lake.check_shown(table)
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
    key = (lake.name, *(config.dag_id_prefix for config in lake.hidden), table, begin)
    fed = heads.read(lake.catalog, AUDIT, key, lambda: _read(lake, table, begin))
    # the page of one table shows its lag by itself
    moments = {} if table else read_moments(lake, [each.name for each in fed], trends(lake, heads))
    rows = [{"fed": each, "report": report_link(lake.name, each.last), **moments.get(each.name, {})} for each in fed]
    rows.sort(key=_urgency)
    return {
        "rows": rows,
        "table": table,
        "hours": HOURS,
        "total": sum((each.total for each in fed), Intake()),
        "late": sum(1 for row in rows if _is_late(row)),
        "failed": sum(each.last.outcome == "failed" for each in fed),
    }


def _read(lake: Lake, table: str | None, begin: datetime) -> list[FedTable]:
    by_table: dict[str, list[AuditRow]] = defaultdict(list)
    for row in history(lake.catalog, table, begin, _MOST_ROWS, where={"job": _JOB}):
        if lake.shows(row.table) and not row.is_dry_run:
            by_table[row.table].append(row)
    return [FedTable.of(name, rows, begin) for name, rows in by_table.items()]


def _is_late(row: dict[str, Any]) -> bool:
    return bool(row.get("freshness")) and not row["freshness"].is_kept


def _urgency(row: dict[str, Any]) -> tuple[bool, bool, int, str]:
    fed: FedTable = row["fed"]
    return fed.last.outcome != "failed", not _is_late(row), -fed.total.events, fed.name
