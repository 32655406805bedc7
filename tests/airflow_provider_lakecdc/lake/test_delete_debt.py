"""Delete debt of real tables in a real catalog."""

from __future__ import annotations

import pytest

from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.delete_debt import debt_of
from airflow_provider_lakecdc.lake.tables import MAIN, open_table
from lakecdc.metadata.debt import DeleteDebt
from tests.airflow_provider_lakecdc.tables import FedTable


def read(table: str = "shop.orders", branch: str = "main") -> DeleteDebt | None:
    with open_table(get_catalog("lake"), table) as loaded:
        return debt_of(loaded, branch) if loaded is not None and branch in {MAIN, *loaded.metadata.refs} else None


@pytest.fixture
def orders(lake: dict[str, str]) -> FedTable:
    return FedTable(lake)


@pytest.fixture
def no_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("A manifest list was opened.")

    monkeypatch.setattr("pyiceberg.table.snapshots.Snapshot.manifests", refuse)


def test_a_missing_table_or_branch_has_no_debt(orders: FedTable) -> None:
    assert read("shop.nothing") is None
    assert read("elsewhere.nothing") is None
    assert read(branch="audit") is None


def test_an_empty_table_has_no_debt(orders: FedTable) -> None:
    assert read() == DeleteDebt()


def test_row_counts_come_from_summaries(orders: FedTable, request: pytest.FixtureRequest) -> None:
    orders.ingest(None)
    orders.delete(10, 20)
    orders.maintain()
    orders.delete(5)
    orders.delete(3, 3, by_position=True)
    request.getfixturevalue("no_manifests")
    assert read() == DeleteDebt(3, 35, 2, 6)


def test_manifests_are_read_where_expiry_cut_the_history(orders: FedTable) -> None:
    first = orders.ingest(None)
    added = orders.delete(10, 20)
    orders.delete(3, by_position=True)
    orders.expire(first, added)
    assert read() == DeleteDebt(2, 30, 1, 3)


def test_a_branch_has_its_own_debt(orders: FedTable) -> None:
    clean = orders.ingest(None)
    orders.delete(10)
    orders.table.manage_snapshots().create_branch(snapshot_id=clean, branch_name="audit").commit()
    assert read(branch="audit") == DeleteDebt()
    assert read() == DeleteDebt(1, 10)
