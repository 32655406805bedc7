"""Costs of jobs and savings of readers, from the audit, in core-seconds and by prices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_provider_lakecdc.audit import history
from airflow_provider_lakecdc.audit.views import RunCost, TableCost, run_costs, table_costs
from airflow_provider_lakecdc.governance.discovery import QueryLog
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from lakecdc.metadata.cost import Prices, days_between, per_month

# audit rows read at most; the newest then cover fewer days
_MOST_ROWS = 20_000


@dataclass(frozen=True)
class Costs:
    """Costs by DAG run and table.

    :param days: days of history that they cover, and months are extrapolated from.
    """

    days: float
    runs: tuple[RunCost, ...]
    tables: tuple[TableCost, ...]
    prices: Prices | None = None

    def month(self, core_seconds: float) -> float:
        """Extrapolate core-seconds of these days to a month."""
        return round(per_month(core_seconds, self.days), 3)

    @property
    def core_seconds(self) -> float:
        """Return the total of all tables."""
        return round(sum(each.core_seconds for each in self.tables), 3)

    def cpu(self, core_seconds: float) -> str:
        """Format the price of CPU time; ``-`` without prices."""
        return self.prices.format_cpu(core_seconds) if self.prices else "-"

    def reads(self, requests: float | None) -> str:
        """Format the price of read requests; ``-`` if they or prices are not known."""
        return self.prices.format(self.prices.of_reads(requests)) if self.prices and requests is not None else "-"

    def facts(self) -> dict[str, Any]:
        """Return the costs as JSON."""
        price, price_of_reads = (self.prices.of_cpu, self.prices.of_reads) if self.prices else (None, None)
        runs = [{**vars(each), "cost": price(each.core_seconds) if price else None} for each in self.runs]
        tables = []
        for each in self.tables:
            month, requests = self.month(each.core_seconds), each.requests_spared
            spared = price_of_reads(requests) if price_of_reads and requests is not None else None
            money = {
                "cost": price(each.core_seconds) if price else None,
                "cost_month_extrapolated": price(month) if price else None,
                "spared_estimated": spared,
            }
            tables.append({**vars(each), "core_seconds_month_extrapolated": month, **money})
        currency = self.prices.currency if self.prices else None
        return {"days": round(self.days, 2), "currency": currency, "runs": runs, "tables": tables}


def costs_of(
    catalog: CatalogConnection,
    since: datetime,
    prices: Prices | None = None,
    query_log: QueryLog | None = None,
    shows: Callable[[str], bool] = lambda table: True,
) -> Costs:
    """Read the costs of jobs that ended since a time.

    :param query_log: how often tables are read; without it, savings of readers are not estimated.
    :param shows: selects the tables that count.
    """
    now, recorded = datetime.now(UTC), history(catalog, since=since, limit=_MOST_ROWS)
    # the newest rows cover fewer days than asked for if the audit is young, or has more of them
    days = days_between(min((row.finished_at for row in recorded), default=now), now)
    rows = [row for row in recorded if shows(row.table)]
    reads = query_log.reads_per_day(catalog, {row.table for row in rows}, now) if query_log else {}
    return Costs(days, tuple(run_costs(rows)), tuple(table_costs(rows, reads, now)), prices)
