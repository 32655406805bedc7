"""How real tables in a real catalog stand."""

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
    (found,) = report_statuses(get_catalog("lake"), [table], **options).values()
    # it goes into XCom
    assert json.loads(json.dumps(found)) == found
    return found


@pytest.fixture
def orders(lake: dict[str, str]) -> FedTable:
    return FedTable(lake)


def test_an_empty_table(orders: FedTable) -> None:
    found = status(partitions=True)
    assert (found["format_version"], found["ready_for_v4"], found["last_write"]) == (2, True, None)
    assert found["refused_by"] == found["gained_by_rewrite"] == found["partitions"] == []
    assert status("shop.nothing") == {"error": "The table does not exist."}


def test_a_table_with_delete_debt_names_engines_that_cannot_read_it_and_its_last_write(orders: FedTable) -> None:
    fed = orders.ingest(FIVE)
    orders.delete(7, 3, summary={names.JOB: "ingest"})
    written = orders.table.current_snapshot()
    orders.delete(10, by_position=True, summary={names.JOB: "rewrite_delete_files"})
    found = status()
    assert (found["equality_delete_files"], found["equality_deletes"], found["position_deletes"]) == (2, 10, 10)
    assert not found["ready_for_v4"]
    assert "Snowflake" in found["refused_by"] and "DuckDB 1.5" in found["readable_by"]
    assert found["gained_by_rewrite"] == ["PyIceberg 0.12", "Snowflake"]
    assert written is not None and found["last_write"]["snapshot_id"] == str(written.snapshot_id) != str(fed)
    assert found["last_write"]["source_time"] == FIVE
    assert found["last_write"]["source_lag_seconds"] > 0
    assert found["last_write"]["position"]["source"] == "postgres"


def test_ingestion_keeps_fresh_what_it_feeds_or_aggregates_but_no_export(
    lake: dict[str, str], orders: FedTable
) -> None:
    fed, changes = orders.ingest(FIVE), FedTable(lake, "shop.changes")
    assert status()["is_kept_fresh"] and not status("shop.changes")["is_kept_fresh"]
    changes.take_changes(orders, fed)
    assert not status("shop.changes")["is_kept_fresh"]
    with changes.table.transaction() as transaction:
        transaction.set_properties({names.AGGREGATED: "{}"})
    assert status("shop.changes")["is_kept_fresh"]


def test_a_table_of_version_4_is_named_and_stops_no_other(lake: dict[str, str], orders: FedTable) -> None:
    FedTable(lake, "shop.items")
    orders.upgrade_beyond_pyiceberg()
    found = report_statuses(get_catalog("lake"), ["shop.orders", "shop.items"], health=True)
    assert found["shop.orders"] == {
        "error": "UnsupportedError: shop.orders: PyIceberg, which Airflow's workers read metadata with, cannot read "
        "format version 4. Jobs in Spark work on it all the same; its health is not measured."
    }
    assert found["shop.items"]["format_version"] == 2


def test_a_promise_to_readers_that_is_broken(orders: FedTable) -> None:
    assert (status()["readers"], status()["readers_problem"]) == ([], None)
    with orders.table.transaction() as transaction:
        # one that a newer release knows
        transaction.set_properties({names.READERS: "snowflake,others"})
    orders.ingest(None)
    assert (status()["readers"], status()["readers_problem"]) == (["snowflake"], None)
    orders.delete(2)
    assert status()["readers_problem"] == (
        "The table has format version 2, and Snowflake cannot read equality deletes. Run the job set_readers."
    )


def test_the_table_is_refused_by_pyiceberg_as_the_list_says(orders: FedTable) -> None:
    orders.ingest(None)
    orders.delete(1)
    assert "PyIceberg 0.12" in status()["refused_by"]
    with pytest.raises(ValueError, match="equality"):
        orders.table.scan().to_arrow()


def test_when_each_partition_was_changed(orders: FedTable) -> None:
    schema = Schema(NestedField(1, "id", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table = orders.catalog.create_table("shop.parts", schema, partition_spec=spec)
    for value in (1, 2, 1):
        table.append(ROW.set_column(0, "id", [[value]]))
    found = {each["partition"]["id"]: each for each in status("shop.parts", partitions=True)["partitions"]}
    assert {value: each["records"] for value, each in found.items()} == {"1": 2, "2": 1}
    assert found["1"]["last_changed"] > found["2"]["last_changed"]
    orders.ingest(None)
    orders.delete(1)
    assert len(status(partitions=True)["partitions"]) == 1


def test_health_is_measured_on_demand_and_sorted_by_score(orders: FedTable) -> None:
    assert status(health=True)["health"] is None and "health" not in status()
    for _ in range(3):
        orders.ingest(None)
    orders.delete(7, 3)
    found = status(health=True)["health"]
    assert (found["data_files"], found["files_by_size"]["tiny"], found["files_needed"]) == (3, 3, 1)
    assert (found["equality_delete_files"], found["equality_deletes"], found["delete_file_reads"]) == (2, 10, 6)
    assert (found["snapshots"], found["manifests"]) == (4, 4)
    assert found["score"] == pytest.approx(100 - sum(found["lost"].values())) and found["lost"]["deletes"] > 10
    assert f"  {found['score']:.0f}  " in overview({"shop.orders": status(health=True)})


def test_tables_of_a_namespace(orders: FedTable, lake: dict[str, str]) -> None:
    FedTable(lake, "shop.items")
    orders.catalog.create_namespace("elsewhere")
    assert tables_of(get_catalog("lake"), "shop") == ["shop.items", "shop.orders"]
    assert tables_of(get_catalog("lake"), "elsewhere") == []
