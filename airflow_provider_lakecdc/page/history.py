"""What jobs have done, as ``lakecdc.audit`` has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecdc.audit import AuditRow, history
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.lookups import Heads
from lakecdc.metadata.names import AUDIT

_RUNS = 100
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
    """What a job has done to a table, and what of the table that has changed."""

    row: AuditRow
    changes: tuple[Change, ...]


def runs_of(lake: Lake, table: str | None, heads: Heads) -> dict[str, Any]:
    """What the history tells, the newest first.

    :param table: ``namespace.name``; None is all of the catalog.
    """
    catalog = lake.catalog
    rows = heads.read(catalog, AUDIT, (lake.conn_id, table), lambda: history(catalog, table, limit=_RUNS))
    return {"runs": [Run(row, tuple(changes(row.metrics))) for row in rows], "table": table, "most": _RUNS}


def changes(metrics: Mapping[str, Any]) -> Iterator[Change]:
    """What of a table has changed, as the metrics of a job tell."""
    for name in _NUMBERS:
        before, after = metrics.get(f"{name}_before"), metrics.get(f"{name}_after")
        if before is not None and after is not None and before != after:
            yield Change(name.replace("_", " "), before, after)
