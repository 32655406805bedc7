"""The check of delete debt, with real tables in a real catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from pyiceberg.types import DoubleType, IntegerType, NestedField, StringType, StructType

from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.sensors.delete_debt import DeleteDebtSensor
from airflow_provider_lakecdc.sensors.polling import Side
from lakecdc.metadata.debt import DeleteDebt
from tests.airflow_provider_lakecdc.tables import FedTable


@pytest.fixture
def orders(lake: dict[str, str]) -> FedTable:
    return FedTable(lake)


def check(tables: Sequence[str], limits: Mapping[str, int], until: Side) -> dict[str, dict[str, int]] | None:
    return DeleteDebtSensor.check(get_catalog("lake"), tables=tables, limits=limits, until=until)


def test_debt_that_cannot_be_removed_does_not_start_a_run(orders: FedTable) -> None:
    """Check the debt: a DAG that starts the job at any debt would start it forever."""
    limits = {"max_equality_delete_files": 1, "max_equality_deletes": 5}
    with orders.table.update_schema() as update:
        update.add_column("x", DoubleType())
        update.add_column("s", StructType(NestedField(4, "a", IntegerType())))
    orders.ingest(None)
    orders.delete(10, 20, key=orders.table.schema().find_field("x").field_id)
    assert check(["shop.orders"], limits, "above") is None
    assert check(["shop.orders"], limits, "below") is None
    orders.delete(3, 4)
    debts = check(["shop.orders"], limits, "above")
    assert debts == {"shop.orders": DeleteDebt(2, 7).counts()}
    # readers fail on the whole table because of it
    orders.delete(1, key=orders.table.schema().find_field("s.a").field_id)
    assert check(["shop.orders"], limits, "above") is None


def test_specs_and_partitions_can_make_debt_unremovable(orders: FedTable) -> None:
    limits = {"max_equality_delete_files": 0}
    with orders.table.update_schema() as update:
        update.add_column("place", StringType())
    with orders.table.update_spec() as spec:
        spec.add_identity("place")
    orders.table.append(pa.table({"id": pa.array([1], pa.int64()), "place": ["north"]}))
    with orders.table.update_spec() as spec:
        spec.remove_field("place")
    orders.delete(5)
    assert check(["shop.orders"], limits, "above") is not None
    with orders.table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("place")
    # it applies to the whole table, including files of that spec
    assert check(["shop.orders"], limits, "above") is None


def test_above_needs_any_table_and_below_needs_all(lake: dict[str, str], orders: FedTable) -> None:
    limits = {"max_equality_delete_files": 1}
    FedTable(lake, "shop.lines").delete(9, 9)
    orders.delete(9)
    names, few, many = ["shop.orders", "shop.lines"], DeleteDebt(1, 9).counts(), DeleteDebt(2, 18).counts()
    assert check(names, limits, "above") == {"shop.lines": many}
    assert check(names, limits, "below") is None
    assert check(names[:1], limits, "above") is None
    assert check(names[:1], limits, "below") == {"shop.orders": few}
