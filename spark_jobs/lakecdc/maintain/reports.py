"""Build reports of jobs on one table."""

from __future__ import annotations

import time
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.iceberg.table import IcebergTable, Snapshot

DRY_RUN = "dry run: nothing was changed"


def nothing(table: IcebergTable, reason: str, head: Snapshot | None = None, **metrics: Any) -> TableReport:
    """Report why a table needs nothing."""
    return TableReport(table.name, "nothing", reason, **ends(head, head), metrics=metrics)


def empty(table: IcebergTable) -> TableReport:
    return nothing(table, "the table has no snapshot")


def dry_run(table: IcebergTable, head: Snapshot | None, **metrics: Any) -> TableReport:
    return nothing(table, DRY_RUN, head, **metrics)


def ends(before: Snapshot | None, after: Snapshot | None) -> dict[str, Any]:
    """Return the fields of a report with the heads before and after."""
    return {"snapshot_before": str(before.id) if before else None, "snapshot_after": str(after.id) if after else None}


def seconds_since(started: float) -> float:
    """Return the seconds since a time of the monotonic clock, rounded for a report."""
    return round(time.monotonic() - started, 3)


def joined(*parts: str | None) -> str:
    """Join the parts of a reason, without empty ones."""
    return "; ".join(part for part in parts if part)
