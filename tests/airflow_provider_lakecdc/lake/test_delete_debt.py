"""Delete debt of real tables in a real catalog."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.types import DoubleType, IntegerType, NestedField, StringType, StructType

from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.delete_debt import check_delete_debt, read_delete_debt
from lakecdc.metadata.debt import DebtLimits, DeleteDebt
from tests.airflow_provider_lakecdc.tables import FedTable


def read(table: str = "shop.orders", branch: str = "main") -> DeleteDebt | None:
    return read_delete_debt(get_catalog("lake"), table, branch)


@pytest.fixture
def orders(lake: dict[str, str]) -> FedTable:
    return FedTable(lake)


@pytest.fixture
def no_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("A manifest list has been opened.")

    monkeypatch.setattr("pyiceberg.table.snapshots.Snapshot.manifests", refuse)


def test_there_is_none_without_a_table_or_a_branch(orders: FedTable) -> None:
    assert read("shop.nothing") is None
    assert read("elsewhere.nothing") is None
    assert read(branch="audit") is None


def test_an_empty_table_owes_nothing(orders: FedTable) -> None:
    assert read() == DeleteDebt()


def test_it_is_told_from_summaries(orders: FedTable, request: pytest.FixtureRequest) -> None:
    orders.ingest(None)
    orders.delete(10, 20)
    orders.maintain()
    orders.delete(5)
    orders.delete(3, 3, by_position=True)
    request.getfixturevalue("no_manifests")
    assert read() == DeleteDebt(3, 35, 2, 6)


def test_where_expiry_has_cut_the_way_back_manifests_are_read(orders: FedTable) -> None:
    first = orders.ingest(None)
    added = orders.delete(10, 20)
    orders.delete(3, by_position=True)
    orders.expire(first, added)
    assert read() == DeleteDebt(2, 30, 1, 3)


def test_a_branch_has_a_debt_of_its_own(orders: FedTable) -> None:
    clean = orders.ingest(None)
    orders.delete(10)
    orders.table.manage_snapshots().create_branch(snapshot_id=clean, branch_name="audit").commit()
    assert read(branch="audit") == DeleteDebt()
    assert read() == DeleteDebt(1, 10)


def test_what_no_run_can_pay_is_no_reason_for_one(orders: FedTable) -> None:
    """A DAG that starts the job whenever there is debt would start it for ever."""
    catalog, limits = get_catalog("lake"), DebtLimits(max_equality_delete_files=1, max_equality_deletes=5)
    with orders.table.update_schema() as update:
        update.add_column("x", DoubleType())
        update.add_column("s", StructType(NestedField(4, "a", IntegerType())))
    orders.ingest(None)
    orders.delete(10, 20, key=orders.table.schema().find_field("x").field_id)
    assert check_delete_debt(catalog, ["shop.orders"], "main", limits, "above") is None
    assert check_delete_debt(catalog, ["shop.orders"], "main", limits, "below") is None
    orders.delete(3, 4)
    found = check_delete_debt(catalog, ["shop.orders"], "main", limits, "above")
    assert found == {"shop.orders": DeleteDebt(2, 7).counts()}
    # readers fail on the whole table for it
    orders.delete(1, key=orders.table.schema().find_field("s.a").field_id)
    assert check_delete_debt(catalog, ["shop.orders"], "main", limits, "above") is None


def test_what_specs_and_partitions_make_unpayable(orders: FedTable) -> None:
    catalog, limits = get_catalog("lake"), DebtLimits(max_equality_delete_files=0)
    with orders.table.update_schema() as update:
        update.add_column("place", StringType())
    with orders.table.update_spec() as spec:
        spec.add_identity("place")
    orders.table.append(pa.table({"id": pa.array([1], pa.int64()), "place": ["north"]}))
    with orders.table.update_spec() as spec:
        spec.remove_field("place")
    orders.delete(5)
    assert check_delete_debt(catalog, ["shop.orders"], "main", limits, "above") is not None
    with orders.table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("place")
    # it is of the whole table, to which files of that spec belong
    assert check_delete_debt(catalog, ["shop.orders"], "main", limits, "above") is None


def test_above_is_any_table_and_below_is_all(lake: dict[str, str], orders: FedTable) -> None:
    catalog, limits = get_catalog("lake"), DebtLimits(max_equality_delete_files=1)
    FedTable(lake, "shop.lines").delete(9, 9)
    orders.delete(9)
    names, few, many = ["shop.orders", "shop.lines"], DeleteDebt(1, 9).counts(), DeleteDebt(2, 18).counts()
    assert check_delete_debt(catalog, names, "main", limits, "above") == {"shop.lines": many}
    assert check_delete_debt(catalog, names, "main", limits, "below") is None
    assert check_delete_debt(catalog, names[:1], "main", limits, "above") is None
    assert check_delete_debt(catalog, names[:1], "main", limits, "below") == {"shop.orders": few}
