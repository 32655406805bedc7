"""The report as the log and XCom show it."""

from __future__ import annotations

import dataclasses

from airflow_provider_lakecdc.submit.reporting import compact, summary
from lakecdc.contract.report import JobReport, TableReport

REPORT = JobReport(
    "rewrite_delete_files",
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:09Z",
    spark_application_id="local-1",
    tables=(
        TableReport("shop.orders", "done", None, None, "1", "2", {"seconds": 1.23456, "rows": 7}),
        TableReport("shop.order_items", "failed", "no way to postgresql://u:hunter2@h/d", "cluster"),
    ),
)


def test_the_summary_has_one_aligned_line_per_table() -> None:
    title, heading, orders, items = summary(REPORT).splitlines()
    assert title.startswith("rewrite_delete_files") and "local-1" in title
    assert orders.index("done") == items.index("failed") == heading.index("outcome")
    assert "seconds=1.235, rows=7" in orders


def test_the_summary_tells_what_has_changed() -> None:
    metrics = {"commits": 1, "files_before": 9, "rows_before": 5, "files_after": 2, "rows_after": 5, "depth_after": 1.5}
    report = dataclasses.replace(REPORT, tables=(TableReport("shop.orders", "done", metrics=metrics),))
    assert summary(report).splitlines()[-1].endswith("  commits=1, files=9→2, depth_after=1.5")


def test_passwords_are_masked_everywhere() -> None:
    assert "hunter2" not in summary(REPORT)
    assert "hunter2" not in str(compact(REPORT))
    assert "no way to" in compact(REPORT)["shop.order_items"]["reason"]


def test_the_compact_form_leaves_out_what_is_empty() -> None:
    assert "reason" not in compact(REPORT)["shop.orders"]
    assert "metrics" not in compact(REPORT)["shop.order_items"]


def test_an_error_before_any_table_is_in_the_summary() -> None:
    assert "stopped: no catalog" in summary(JobReport("ingest", "a", "b", error="no catalog"))
