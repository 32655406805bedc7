"""The history of jobs, from ``lakecdc.audit``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_lakecdc.audit import history
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.lookups import MetadataCache
from airflow_provider_lakecdc.page.task import report_link
from lakecdc.metadata.names import AUDIT

_RUNS = 100
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


def changes(metrics: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the changed numbers in a job's metrics, each with its name, before and after the job."""
    for name in _NUMBERS:
        before, after = metrics.get(f"{name}_before"), metrics.get(f"{name}_after")
        if before is not None and after is not None and before != after:
            yield {"name": name.replace("_", " "), "before": before, "after": after}
