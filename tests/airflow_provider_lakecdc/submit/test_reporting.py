"""The report in the log and in XCom."""

from __future__ import annotations

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


def test_the_summary_is_one_line() -> None:
    assert summary(REPORT) == "rewrite_delete_files took 9 s (local-1): 1 done, 1 failed"


def test_passwords_are_masked_everywhere() -> None:
    assert "hunter2" not in str(compact(REPORT))
    assert "no way to" in compact(REPORT)["shop.order_items"]["reason"]


def test_the_compact_form_omits_empty_members() -> None:
    assert "reason" not in compact(REPORT)["shop.orders"]
    assert "metrics" not in compact(REPORT)["shop.order_items"]
