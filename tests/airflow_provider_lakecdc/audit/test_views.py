"""Queries over the rows of audit and health."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from airflow_provider_lakecdc.audit import AuditRow, HealthRow
from airflow_provider_lakecdc.audit.views import (
    Cost,
    Orphans,
    RunCost,
    Saving,
    TableCost,
    costs,
    hurting,
    orphans,
    run_costs,
    savings,
    table_costs,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROW = AuditRow(
    *("a/0", "a", "compact_data_files", "shop.orders", NOON, NOON, "done", False, "d", "r", "t", 1),
    core_seconds=2.0,
    bytes_read=100,
    bytes_written=60,
    metrics={
        "data_files_before": 9,
        "data_files_after": 2,
        "delete_read_cost_before": 4.5,
        "delete_read_cost_after": 0,
    },
)


def test_the_latest_health_of_each_table_is_sorted_by_score() -> None:
    rows = [HealthRow(f"m/{table}{age}", table, NOON - timedelta(days=age), score)
            for table, age, score in (("a", 1, 10.0), ("a", 0, 90.0), ("b", 0, 50.0), ("b", 3, 99.0))]  # fmt: skip
    assert [(row.table, row.score) for row in hurting(rows)] == [("b", 50.0), ("a", 90.0)]


def test_costs_are_summed_by_day_table_and_job() -> None:
    failed = replace(ROW, outcome="failed", core_seconds=None, bytes_read=None, bytes_written=None)
    planned = replace(ROW, predicted_core_seconds=1.5)
    before = replace(ROW, finished_at=NOON - timedelta(days=1), core_seconds=99.0)
    other = replace(ROW, job="sort_data_files", core_seconds=30.0)
    assert costs([ROW, failed, planned, before, other]) == [
        Cost(date(2026, 3, 1), "shop.orders", "sort_data_files", 1, 0, 30.0, 0, 100, 60),
        Cost(date(2026, 3, 1), "shop.orders", "compact_data_files", 3, 1, 4.0, 1.5, 200, 120),
        Cost(date(2026, 2, 28), "shop.orders", "compact_data_files", 1, 0, 99.0, 0, 100, 60),
    ]


def test_costs_of_runs_include_unmeasured_ones() -> None:
    night = replace(ROW, table="shop.items", started_at=NOON - timedelta(hours=1), core_seconds=1.25)
    fed = replace(ROW, job="ingest", core_seconds=None)
    later = replace(ROW, run_id="r2", finished_at=NOON + timedelta(days=1))
    assert run_costs([ROW, night, fed, later]) == [
        RunCost("d", "r2", NOON, NOON + timedelta(days=1), 1, 2.0, 0),
        RunCost("d", "r", NOON - timedelta(hours=1), NOON, 2, 3.25, 1),
    ]


def test_costs_of_tables_include_the_read_cost_removed() -> None:
    deletes = {
        "data_files_before": 4,
        "data_files_after": 4,
        "delete_file_reads_before": 9,
        "delete_file_reads_after": 4,
    }
    converted = replace(ROW, job="rewrite_delete_files", finished_at=NOON - timedelta(days=1), metrics=deletes)
    # expiring live rows saves readers no cost
    expired, dry = replace(ROW, job="expire_partitions"), replace(ROW, is_dry_run=True)
    failed = replace(ROW, table="shop.items", outcome="failed", core_seconds=None)
    rows, now = [ROW, converted, expired, dry, failed], NOON + timedelta(days=1)
    assert table_costs(rows, {}, now) == [
        TableCost("shop.orders", 8.0, 0, 7 + 5, None, None),
        TableCost("shop.items", 0, 1, 0, None, None),
    ]
    orders, items = table_costs(rows, {"shop.orders": 24.0}, now)
    assert orders.requests_spared == 24 * (7 * 1 + 5 * 2) and items.requests_spared == 0


def test_savings_are_summed_by_table_and_job() -> None:
    idle, dry = replace(ROW, outcome="nothing"), replace(ROW, is_dry_run=True)
    expiry = replace(ROW, job="expire_snapshots", metrics={"data_files_before": 2})
    assert savings([ROW, idle, dry, expiry, ROW]) == [
        Saving("shop.orders", "compact_data_files", 9.0, 0, 14, 4.0),
        Saving("shop.orders", "expire_snapshots", 0, 0, 0, 2.0),
    ]


def test_orphans_are_those_left_by_the_last_search() -> None:
    def search(table: str, hours: int, **metrics: int) -> AuditRow:
        at = NOON - timedelta(hours=hours)
        return replace(ROW, job="remove_orphan_files", table=table, finished_at=at, metrics=metrics)

    rows = [
        search("a", 1, orphan_files=3, orphan_bytes=30, files_taken=0, bytes_taken=0),
        search("a", 9, orphan_files=9, orphan_bytes=90),
        search("b", 2, orphan_files=5, orphan_bytes=50, files_taken=4, bytes_taken=45),
        # restoring files is not a search
        search("b", 1, files_to_restore=4),
        search("gone", 1, orphan_files=5, orphan_bytes=50, files_taken=5, bytes_taken=50),
        ROW,
    ]
    hour = timedelta(hours=1)
    assert orphans(rows) == [Orphans("a", 3, 30, NOON - hour), Orphans("b", 1, 5, NOON - 2 * hour)]
