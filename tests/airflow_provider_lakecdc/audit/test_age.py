"""Rows of audit and health expire by age, and a worker notices when none is old enough."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_lakecdc.audit import record_application, record_health
from airflow_provider_lakecdc.governance.assess_tables import assess
from airflow_provider_lakecdc.governance.assessment import Assessment, Steps
from airflow_provider_lakecdc.governance.discovery import TableSelection
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.lake.assess_table import Idle, OpenTable, Undecided, assess_job
from airflow_provider_lakecdc.lake.live_files import oldest_day
from airflow_provider_lakecdc.operators.plan import tasks_of
from lakecdc.contract.expiring import ExpirePartitionsOptions
from lakecdc.metadata import names
from lakecdc.metadata.plan import choose
from tests.airflow_provider_lakecdc.audit.conftest import application
from tests.airflow_provider_lakecdc.tables import FedTable

JOB = "expire_partitions"
NOW = datetime.now(UTC)
DAYS = 86400.0


def measured(catalog: CatalogConnection, *ages: int) -> None:
    for age in ages:
        assert record_health(catalog, NOW - timedelta(days=age), {"shop.orders": {"score": 70.0}})


def assess_age(catalog: CatalogConnection, **options: Any) -> Any:
    table = catalog.load().load_table(names.HEALTH)
    return assess_job(OpenTable(table), JOB, ExpirePartitionsOptions(**{"time_column": "measured_at", **options}))


def test_days_show_whether_a_row_is_old_enough(catalog: CatalogConnection) -> None:
    measured(catalog, 400, 3)
    table = catalog.load().load_table(names.HEALTH)
    manifests = table.current_snapshot().manifests(table.io)  # type: ignore[union-attr]
    assert oldest_day(table, manifests, "measured_at") == (NOW - timedelta(days=400)).date()
    # cut off at midnight
    assert isinstance(assess_age(catalog, max_age=400 * DAYS), Idle)
    assert isinstance(assess_age(catalog, max_age=399 * DAYS), Undecided)
    assert isinstance(assess_age(catalog, older_than=(NOW - timedelta(days=401)).isoformat()), Idle)
    # a cutoff within a day may have earlier rows
    midnight = datetime.combine(NOW - timedelta(days=400), datetime.min.time(), UTC)
    assert isinstance(assess_age(catalog, older_than=midnight.isoformat()), Idle)
    assert isinstance(assess_age(catalog, older_than=(midnight + timedelta(seconds=1)).isoformat()), Undecided)
    # the job itself refuses bad options
    assert isinstance(assess_age(catalog), Undecided)
    for other in ("score", "nothing", None):
        assert isinstance(assess_age(catalog, time_column=other, max_age=500 * DAYS), Undecided)


def test_rows_before_1970_have_a_day_too(lake: dict[str, str], catalog: CatalogConnection) -> None:
    measured(catalog, (NOW.date() - date(1969, 12, 30)).days)
    table = FedTable.open(lake).load_table(names.HEALTH)
    manifests = table.current_snapshot().manifests(table.io)  # type: ignore[union-attr]
    assert oldest_day(table, manifests, "measured_at") == date(1969, 12, 30)


def test_files_without_partitions_by_day_are_left_to_the_job(catalog: CatalogConnection) -> None:
    measured(catalog, 1)
    table = catalog.load().load_table(names.HEALTH)
    with table.update_spec() as change:
        change.remove_field("measured_at_day")
    table = catalog.load().load_table(names.HEALTH)
    rows = {"row_id": "x", "table": "t", "measured_at": NOW, "score": 1.0, "lost": "{}", "facts": "{}"}
    table.append(pa.Table.from_pylist([rows], schema=table.schema().as_arrow()))
    assert isinstance(assess_age(catalog, max_age=500 * DAYS), Undecided)


@pytest.mark.parametrize("is_alike", [False, True])
def test_the_weekly_plan_contains_audit_and_health_once_rows_are_old(
    lake: dict[str, str], catalog: CatalogConnection, is_alike: bool
) -> None:
    FedTable(lake).ingest(None)
    assert record_application(catalog, application())
    measured(catalog, 1)
    retention_by_table = {
        names.AUDIT: {"time_column": "finished_at", "max_age": 400 * DAYS},
        names.HEALTH: {"time_column": "measured_at", "max_age": 400 * DAYS},
    }
    # a user's table may have the same options as a side table
    own = {**retention_by_table, **({"shop.orders": retention_by_table[names.HEALTH]} if is_alike else {})}
    steps = Steps({JOB: {}}, {JOB: [names.AUDIT, names.HEALTH]}, {JOB: own})

    def assess_orders() -> Assessment:
        return assess(catalog, TableSelection(("shop.orders",)), steps)

    planned = {"shop.orders"} if is_alike else set()
    assert {action.table for action in assess_orders().actions} == planned
    assert {each.table for each in assess_orders().tables if JOB in each.idle} == {names.AUDIT, names.HEALTH}
    measured(catalog, 500)
    old = assess_orders()
    assert {action.table for action in old.actions} == planned | {names.HEALTH}
    (tasks,) = tasks_of(choose(old.actions), old, [JOB])
    assert tasks[JOB]["tables"] == [*planned, names.HEALTH]
    assert tasks[JOB]["policy_options"] == retention_by_table[names.HEALTH]
