"""Tables that patterns find, and what may be done to them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_lakecdc.governance.assess_tables import assess
from airflow_provider_lakecdc.governance.assessment import Assessed, Steps
from airflow_provider_lakecdc.governance.discovery import TableSelection, select_tables
from lakecdc.metadata import names
from lakecdc.metadata.policy import ALLOW, KEEPING, REMOVING, TablePolicy
from tests.airflow_provider_lakecdc.tables import ROW, FedTable

ALL = tuple(sorted((*KEEPING, *REMOVING)))


@pytest.fixture
def catalog(lake: dict[str, str]) -> Any:
    catalog = FedTable(lake, "shop.orders").catalog
    catalog.create_namespace("crm")
    catalog.create_namespace("crm.eu")
    made = {names.LAYOUT: "1"}
    FedTable(lake, "shop.items").ingest(None)
    for name, properties in {
        "shop.lakecdc_quarantine": made,
        "shop.items_lakecdc_deletes": made,
        "shop.tmp_1": made,
        "crm.people": {ALLOW: "rewrite_manifests"},
        "crm.eu.people": {ALLOW: "compaction"},
    }.items():
        catalog.create_table(name, ROW.schema, properties=properties)
    return SimpleNamespace(load=lambda: FedTable.open(lake))


def found(catalog: Any, *tables: str, fed: tuple[str, ...] = (), **policies: tuple[str, ...]) -> dict[str, Assessed]:
    policy = {"shop.*" if name == "shop" else name: TablePolicy(jobs) for name, jobs in policies.items()}
    wanted = TableSelection(tables, fed, policy)
    told = {each.table: each for each in assess(catalog, wanted, Steps({})).tables}
    assert select_tables(catalog, wanted).tables == list(told)
    return told


def test_named_tables_come_first_and_everything_may_be_done_to_them(catalog: Any) -> None:
    told = found(catalog, "x.absent", "shop.orders")
    assert list(told) == ["x.absent", "shop.orders"]
    assert [each.jobs for each in told.values()] == [(), ALL]
    assert told["x.absent"].is_absent and told["x.absent"].error is None


def test_what_a_pattern_finds_may_only_be_looked_at(catalog: Any) -> None:
    tables = found(catalog, "*", "!*.tmp_*", "shop.orders")
    assert list(tables) == ["shop.orders", "crm.eu.people", "crm.people", "shop.items"]
    assert tables["shop.orders"].jobs == ALL
    assert tables["shop.items"].jobs == ()
    # a team may let its table be kept
    assert tables["crm.people"].jobs == ("rewrite_manifests",)
    error = tables["crm.eu.people"].error
    assert error and "compaction" in error and not tables["crm.eu.people"].jobs


def test_policies_say_more(catalog: Any) -> None:
    tables = found(catalog, "shop.*", shop=("compact_data_files", "expire_snapshots"))
    jobs = ("compact_data_files", "expire_snapshots")
    assert {name: each.jobs for name, each in tables.items()} == dict.fromkeys(
        ["shop.items", "shop.orders", "shop.tmp_1"], jobs
    )


def test_what_ingestion_feeds_is_governed_like_targets(catalog: Any, lake: dict[str, str]) -> None:
    # a property makes no table a fed one, nor do changes of another table that are exported to it
    orders = FedTable(lake, "shop.exported")
    orders.take_changes(orders, 1)
    tables = found(catalog, fed=("shop.*",))
    assert {name for name, each in tables.items() if each.jobs == ALL} == {"shop.items"}
    assert {name for name, each in tables.items() if not each.jobs} == {"shop.orders", "shop.tmp_1", "shop.exported"}
