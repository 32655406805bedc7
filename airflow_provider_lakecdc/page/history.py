"""What jobs have done, as ``lakecdc.audit`` has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecdc.audit import AuditRow, history
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.lookups import Heads
from airflow_provider_lakecdc.page.task import report_link
from lakecdc.metadata.names import AUDIT

_RUNS = 100
# where some are hidden, the hundred that are shown may be far apart
_LOOKED_AT = 5000
#: numbers that reports have before and after a job, those that people ask for first
_NUMBERS = (
    "score",
    "data_files",
    "delete_files",
    "equality_delete_files",
    "delete_read_cost",
    "overlap_depth",
    "manifests",
)


@dataclass(frozen=True)
class Change:
    """A number of a table before and after a job."""

    name: str
    before: float
    after: float


@dataclass(frozen=True)
class Run:
    """What a job has done to a table, and what of the table that has changed.

    :param report: address of the report of the job.
    """

    row: AuditRow
    changes: tuple[Change, ...]
    report: str


def runs_of(lake: Lake, table: str | None, heads: Heads) -> dict[str, Any]:
    """What the history tells, the newest first.

    :param table: ``namespace.name``; None is all of the catalog that may be seen.
    :raises InputError: whoever asks may not see the table.
    """
    if table is not None:
        lake.check_shown(table)
    catalog, most = lake.catalog, _LOOKED_AT if lake.hidden else _RUNS
    rows = heads.read(catalog, AUDIT, (lake.conn_id, table, most), lambda: history(catalog, table, limit=most))
    shown = [row for row in rows if lake.shows(row.table)][:_RUNS]
    runs = [Run(row, tuple(changes(row.metrics)), report_link(lake.name, row)) for row in shown]
    return {"runs": runs, "table": table, "most": _RUNS}


def changes(metrics: Mapping[str, Any]) -> Iterator[Change]:
    """What of a table has changed, as the metrics of a job tell."""
    for name in _NUMBERS:
        before, after = metrics.get(f"{name}_before"), metrics.get(f"{name}_after")
        if before is not None and after is not None and before != after:
            yield Change(name.replace("_", " "), before, after)
