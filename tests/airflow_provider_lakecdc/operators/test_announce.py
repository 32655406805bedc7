"""Writes of a table that were not announced yet."""

from __future__ import annotations

import pytest

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from airflow_provider_lakecdc.operators.announce import unannounced_write
from lakecdc.metadata import names
from tests.airflow_provider_lakecdc.tables import FedTable

MOMENT = "2026-01-01T05:00:00+00:00"


@pytest.fixture
def orders(lake: dict[str, str]) -> FedTable:
    return FedTable(lake)


@pytest.fixture
def catalog(lake: dict[str, str]) -> CatalogConnection:
    return get_catalog("lake")


def new(catalog: CatalogConnection, announced: int | None) -> int | None:
    write = unannounced_write(catalog, "shop.orders", str(announced) if announced else None)
    return int(write.snapshot_id) if write else None


def maintain(table: FedTable) -> int:
    return table.delete(1, by_position=True, summary={names.JOB: "rewrite_delete_files"})


def test_writes_are_distinguished_from_maintenance(orders: FedTable, catalog: CatalogConnection) -> None:
    assert new(catalog, None) is None
    first = orders.ingest(MOMENT)
    assert new(catalog, None) == first
    maintained = maintain(orders)
    assert (new(catalog, None), new(catalog, first), new(catalog, maintained)) == (first, None, None)
    second, third = orders.ingest(MOMENT), orders.ingest(MOMENT)
    maintain(orders)
    assert (new(catalog, first), new(catalog, second), new(catalog, third)) == (third, third, None)


def test_a_missing_snapshot_precedes_all_others(orders: FedTable, catalog: CatalogConnection) -> None:
    first, second = orders.ingest(MOMENT), orders.ingest(MOMENT)
    orders.expire(first)
    assert (new(catalog, first), new(catalog, second)) == (second, None)


def test_a_rollback_is_announced(orders: FedTable, catalog: CatalogConnection) -> None:
    first, second = orders.ingest(MOMENT), orders.ingest(MOMENT)
    orders.roll_back(first)
    assert new(catalog, second) == first


def test_a_missing_table_has_nothing_to_announce(orders: FedTable, catalog: CatalogConnection) -> None:
    assert unannounced_write(catalog, "shop.nowhere", None) is None
    assert unannounced_write(catalog, "nowhere.orders", None) is None
