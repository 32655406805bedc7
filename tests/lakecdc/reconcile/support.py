"""Runs of the job, and what it must and must not say."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.reconcile.job import reconcile
from lakecdc.run import run
from tests.conftest import Lake

#: no test waits
AT_ONCE = {"max_wait": 0.0, "report_values": True}
Difference = tuple[str, str, tuple[str, ...]]


def reconciled(lake: Lake, source: dict[str, Any], target: dict[str, Any], **options: Any) -> TableReport:
    """Compare one table with its source; the table's report."""
    document = lake.spec("reconcile", source=source, target=target, options={**AT_ONCE, **options})
    report = run(parse_spec(document), reconcile)
    assert not report.error, report.error
    return report.tables[0]


def differences(report: TableReport) -> list[Difference]:
    """Kind, key and columns of what differs, sorted."""
    assert "differences" in report.metrics, report.reason
    rows = report.metrics["differences"]
    by_kind = Counter(row["kind"] for row in rows)
    assert {kind: report.metrics[kind] for kind in by_kind} == by_kind
    return sorted((row["kind"], row["key"], tuple(row["columns"])) for row in rows)
