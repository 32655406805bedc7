"""The history of jobs, from ``lakecdc.audit``, and the task instances of their reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import Query

from airflow_provider_lakecdc.audit import AuditRow, history
from airflow_provider_lakecdc.governance.costs import costs_of
from airflow_provider_lakecdc.observe.addresses import link
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.lookups import MetadataCache
from lakecdc.metadata.names import AUDIT

_RUNS = 100
_DAYS_OF_COSTS = 30
# with hidden tables, the visible rows may be far apart
_MOST_ROWS = 5000
#: numbers that reports have before and after a job, in order of interest
_NUMBERS = (
    "score",
    "data_files",
    "delete_files",
    "equality_delete_files",
    "delete_read_cost",
    "overlap_depth",
    "manifests",
)
# maximum length in Airflow's database
Id = Annotated[str, Query(max_length=250)]


def runs_of(lake: Lake, table: str | None, heads: MetadataCache) -> dict[str, Any]:
    """Return the template's values of the history, newest first.

    :param table: ``namespace.name``; None means all visible tables of the catalog.
    :raises InputError: the table is hidden.
    """
    if table is not None:
        lake.check_shown(table)
    catalog, most = lake.catalog, _MOST_ROWS if lake.hidden else _RUNS
    rows = heads.read(catalog, AUDIT, (lake.conn_id, table, most), lambda: history(catalog, table, limit=most))
    shown = [row for row in rows if lake.shows(row.table)][:_RUNS]
    runs = [{"row": row, "changes": [*changes(row.metrics)], "report": report_link(lake.name, row)} for row in shown]
    return {"runs": runs, "table": table, "most": _RUNS}


def costs_of_lake(lake: Lake, heads: MetadataCache) -> dict[str, Any]:
    """Return the template's values of the costs of DAG runs and tables."""
    catalog, config = lake.catalog, lake.config
    prices, query_log = (config.prices, config.query_log) if config else (None, None)
    since = datetime.now(UTC) - timedelta(days=_DAYS_OF_COSTS)
    hidden = tuple(config.dag_id_prefix for config in lake.hidden)
    key = (lake.name, hidden, prices, query_log, since.date())
    costs = heads.read(catalog, AUDIT, key, lambda: costs_of(catalog, since, prices, query_log, lake.shows))
    return {"costs": costs, "most": _RUNS}


def changes(metrics: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the changed numbers in a job's metrics, each with its name, before and after the job."""
    for name in _NUMBERS:
        before, after = metrics.get(f"{name}_before"), metrics.get(f"{name}_after")
        if before is not None and after is not None and before != after:
            yield {"name": name.replace("_", " "), "before": before, "after": after}


@dataclass(frozen=True)
class Task:
    """A task instance.

    :param map_index: -1 if the task is not mapped.
    :param try_number: None means the last try, from XCom; others are from the audit.
    """

    dag_id: Id
    run_id: Id
    task_id: Id
    map_index: int = -1
    try_number: int | None = None


def report_link(lake: str, row: AuditRow) -> str:
    """Return the address of the report of an audit row's try, in a lake with the row."""
    mapped = -1 if row.map_index is None else row.map_index
    return link("report", lake=lake, **vars(Task(row.dag_id, row.run_id, row.task_id, mapped, row.try_number)))
