"""The operator that reports the status of tables."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.operators.table_status import STATUS_KEY, TableStatusOperator
from tests.airflow_provider_lakecdc.tables import FedTable


def operator(**arguments: Any) -> TableStatusOperator:
    return TableStatusOperator(task_id="status", catalog_conn_id="lake", **arguments)


@pytest.fixture
def shop(lake: dict[str, str]) -> FedTable:
    orders = FedTable(lake)
    orders.delete(5)
    FedTable(lake, "shop.items")
    return orders


@pytest.mark.usefixtures("shop")
def test_all_tables_of_a_namespace_are_reported_once(context: Any, caplog: pytest.LogCaptureFixture) -> None:
    statuses = operator(tables="shop.orders", namespaces=["shop"], partitions=True).execute(context)
    assert list(statuses) == ["shop.orders", "shop.items"]
    assert [status["ready_for_v4"] for status in statuses.values()] == [False, True]
    assert context["ti"].xcom[STATUS_KEY] == statuses


def test_an_unreadable_table_fails_the_task_after_the_others(context: Any, shop: FedTable) -> None:
    shop.break_metadata()
    with pytest.raises(LakecdcJobError, match="3 of 4") as error:
        operator(tables=["shop.nothing"], namespaces=["nowhere", "shop"]).execute(context)
    assert "nowhere: Cannot list its tables: NoSuchNamespaceError" in str(error.value)
    assert "shop.nothing: The table does not exist." in str(error.value)
    statuses = context["ti"].xcom[STATUS_KEY]
    assert "error" in statuses["shop.orders"] and statuses["shop.items"]["ready_for_v4"]


def test_an_empty_report_is_an_error(context: Any) -> None:
    with pytest.raises(AirflowFailException, match="Neither"):
        operator(tables="", namespaces=[]).execute(context)


@pytest.mark.usefixtures("shop")
def test_the_overview_is_a_table() -> None:
    from airflow_provider_lakecdc.hooks.catalog import get_catalog
    from airflow_provider_lakecdc.lake.status import report_statuses
    from airflow_provider_lakecdc.operators.table_status import overview

    known = report_statuses(get_catalog("lake"), ["shop.orders"])
    heading, orders, broken = overview({**known, "x.y": {"error": "no way"}}).splitlines()
    assert orders.index("5 in 1 files") == heading.index("equality deletes")
    assert "not ready" in orders and "Snowflake" in orders
    assert broken.startswith("x.y") and broken.endswith("no way")
