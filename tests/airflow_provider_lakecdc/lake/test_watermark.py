"""Watermarks of real tables in a real catalog."""

from __future__ import annotations

import pytest

from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.tables import position_in, read_watermark
from tests.airflow_provider_lakecdc.tables import FedTable

FIVE, SIX, SEVEN = (f"2026-01-01T0{hour}:00:00+00:00" for hour in (5, 6, 7))


def read(table: str = "shop.orders") -> str | None:
    watermark = read_watermark(get_catalog("lake"), table)
    return watermark.isoformat() if watermark else None


@pytest.fixture
def orders(lake: dict[str, str]) -> FedTable:
    return FedTable(lake)


def test_a_missing_table_or_namespace_has_no_watermark(orders: FedTable) -> None:
    assert read("shop.nothing") is None
    assert read("elsewhere.nothing") is None


def test_there_is_no_watermark_before_the_first_position(orders: FedTable) -> None:
    assert read() is None
    orders.maintain()
    assert read() is None
    orders.ingest(None)
    assert read() is None


def test_maintenance_does_not_hide_it(orders: FedTable) -> None:
    orders.ingest(FIVE)
    orders.maintain()
    orders.maintain()
    assert read() == FIVE


def test_the_newest_position_counts(orders: FedTable) -> None:
    orders.ingest(FIVE)
    orders.ingest(SIX)
    assert read() == SIX


def test_an_idle_source_advances_it_only_behind_its_carrier(orders: FedTable) -> None:
    carrier = orders.ingest(FIVE)
    orders.stay_idle(carrier, SEVEN)
    orders.maintain()
    assert read() == SEVEN
    orders.ingest(SIX)
    assert read() == SIX


def test_a_job_of_several_has_no_position_in_another_type_of_source(orders: FedTable) -> None:
    orders.ingest(FIVE, feed="shop")
    assert [bool(position_in(orders.table, source)) for source in ("postgres", "kafka")] == [True, False]


def test_a_rollback_rewinds_it(orders: FedTable) -> None:
    first = orders.ingest(FIVE)
    orders.ingest(SIX)
    orders.roll_back(first)
    assert read() == FIVE
