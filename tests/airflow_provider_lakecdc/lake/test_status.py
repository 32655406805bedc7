"""Status of real tables in a real catalog."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.status import report_statuses, tables_of
from airflow_provider_lakecdc.operators.table_status import overview
from lakecdc.metadata import names
from tests.airflow_provider_lakecdc.tables import ROW, FedTable

FIVE = "2026-01-01T05:00:00+00:00"


def status(table: str = "shop.orders", **options: Any) -> dict[str, Any]:
    (entry,) = report_statuses(get_catalog("lake"), [table], **options).values()
    # it goes into XCom
    assert json.loads(json.dumps(entry)) == entry
    return entry


@pytest.fixture
def orders(lake: dict[str, str]) -> FedTable:
    return FedTable(lake)


def test_an_empty_table_has_no_last_write(orders: FedTable) -> None:
    empty = status(partitions=True)
    assert (empty["format_version"], empty["ready_for_v4"], empty["last_write"]) == (2, True, None)
    assert empty["refused_by"] == empty["gained_by_rewrite"] == empty["partitions"] == []
    assert status("shop.nothing") == {"error": "The table does not exist."}


def test_a_table_with_delete_debt_names_engines_that_cannot_read_it_and_its_last_write(orders: FedTable) -> None:
    fed = orders.ingest(FIVE)
    orders.delete(7, 3, summary={names.JOB: "ingest"})
    written = orders.table.current_snapshot()
    orders.delete(10, by_position=True, summary={names.JOB: "rewrite_delete_files"})
    entry = status()
    assert (entry["equality_delete_files"], entry["equality_deletes"], entry["position_deletes"]) == (2, 10, 10)
    assert not entry["ready_for_v4"]
    assert "Snowflake" in entry["refused_by"] and "DuckDB 1.5" in entry["readable_by"]
    assert entry["gained_by_rewrite"] == ["PyIceberg 0.12", "Snowflake"]
    assert written is not None and entry["last_write"]["snapshot_id"] == str(written.snapshot_id) != str(fed)
    assert entry["last_write"]["source_time"] == FIVE
    assert entry["last_write"]["source_lag_seconds"] > 0
    assert entry["last_write"]["position"]["source"] == "postgres"


def test_ingestion_promises_freshness_for_its_tables_but_not_for_exports(
    lake: dict[str, str], orders: FedTable
) -> None:
    fed, changes = orders.ingest(FIVE), FedTable(lake, "shop.changes")
    assert status()["is_kept_fresh"] and not status("shop.changes")["is_kept_fresh"]
    changes.take_changes(orders, fed)
    assert not status("shop.changes")["is_kept_fresh"]
    with changes.table.transaction() as transaction:
        transaction.set_properties({names.AGGREGATED: "{}"})
    assert status("shop.changes")["is_kept_fresh"]


def test_a_table_of_version_4_is_reported_and_stops_no_other(lake: dict[str, str], orders: FedTable) -> None:
    FedTable(lake, "shop.items")
    orders.upgrade_beyond_pyiceberg()
    statuses = report_statuses(get_catalog("lake"), ["shop.orders", "shop.items"], health=True)
    assert statuses["shop.orders"] == {
        "error": "UnsupportedError: shop.orders: PyIceberg, which Airflow's workers read metadata with, cannot read "
        "format version 4. Spark jobs still work on it; its health is not measured."
    }
    assert statuses["shop.items"]["format_version"] == 2


def test_a_table_unreadable_by_its_readers_is_reported(orders: FedTable) -> None:
    assert (status()["readers"], status()["readers_problem"]) == ([], None)
    with orders.table.transaction() as transaction:
        # unknown to this release
        transaction.set_properties({names.READERS: "snowflake,others"})
    orders.ingest(None)
    assert (status()["readers"], status()["readers_problem"]) == (["snowflake"], None)
    orders.delete(2)
    assert status()["readers_problem"] == (
        "The table has format version 2, and Snowflake cannot read equality deletes. Run the job set_readers."
    )


def test_pyiceberg_refuses_the_table_as_documented(orders: FedTable) -> None:
    orders.ingest(None)
    orders.delete(1)
    assert "PyIceberg 0.12" in status()["refused_by"]
    with pytest.raises(ValueError, match="equality"):
        orders.table.scan().to_arrow()


def test_each_partition_has_its_last_change(orders: FedTable) -> None:
    schema = Schema(NestedField(1, "id", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table = orders.catalog.create_table("shop.parts", schema, partition_spec=spec)
    for value in (1, 2, 1):
        table.append(ROW.set_column(0, "id", [[value]]))
    partitions_by_id = {each["partition"]["id"]: each for each in status("shop.parts", partitions=True)["partitions"]}
    assert {value: each["records"] for value, each in partitions_by_id.items()} == {"1": 2, "2": 1}
    assert partitions_by_id["1"]["last_changed"] > partitions_by_id["2"]["last_changed"]
    orders.ingest(None)
    orders.delete(1)
    assert len(status(partitions=True)["partitions"]) == 1


def test_health_is_measured_on_demand_and_sorted_by_score(orders: FedTable) -> None:
    assert status(health=True)["health"] is None and "health" not in status()
    for _ in range(3):
        orders.ingest(None)
    orders.delete(7, 3)
    health = status(health=True)["health"]
    assert (health["data_files"], health["files_by_size"]["tiny"], health["files_needed"]) == (3, 3, 1)
    assert (health["equality_delete_files"], health["equality_deletes"], health["delete_file_reads"]) == (2, 10, 6)
    assert (health["snapshots"], health["manifests"]) == (4, 4)
    assert health["score"] == pytest.approx(100 - sum(health["lost"].values())) and health["lost"]["deletes"] > 10
    assert f"  {health['score']:.0f}  " in overview({"shop.orders": status(health=True)})


def test_the_tables_of_a_namespace_are_listed(orders: FedTable, lake: dict[str, str]) -> None:
    FedTable(lake, "shop.items")
    orders.catalog.create_namespace("elsewhere")
    assert tables_of(get_catalog("lake"), "shop") == ["shop.items", "shop.orders"]
    assert tables_of(get_catalog("lake"), "elsewhere") == []
