"""Tables that match patterns, and the jobs allowed on them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_lakecdc.governance.assess_tables import assess
from airflow_provider_lakecdc.governance.assessment import Assessed, Steps
from airflow_provider_lakecdc.governance.discovery import QueryLog, TableSelection, select_tables
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from lakecdc.contract.errors import SpecError
from lakecdc.metadata import names
from lakecdc.metadata.policy import ALLOW, KEEPING, REMOVING, TablePolicy
from tests.airflow_provider_lakecdc.tables import ROW, FedTable

ALL = tuple(sorted((*KEEPING, *REMOVING)))
LOG = QueryLog("ops.queries", "read", "at")
TABLES = ["shop.a", "shop.b", "shop.c"]
NOW = datetime(2026, 3, 8, 12, tzinfo=UTC)


@pytest.fixture
def catalog(lake: dict[str, str]) -> Any:
    catalog = FedTable(lake, "shop.orders").catalog
    catalog.create_namespace("crm")
    catalog.create_namespace("crm.eu")
    layout = {names.LAYOUT: "1"}
    FedTable(lake, "shop.items").ingest(None)
    for name, properties in {
        "shop.lakecdc_quarantine": layout,
        "shop.items_lakecdc_deletes": layout,
        "shop.tmp_1": layout,
        "crm.people": {ALLOW: "rewrite_manifests"},
        "crm.eu.people": {ALLOW: "compaction"},
    }.items():
        catalog.create_table(name, ROW.schema, properties=properties)
    return SimpleNamespace(load=lambda: FedTable.open(lake))


def assessed(catalog: Any, *tables: str, fed: tuple[str, ...] = (), **policies: tuple[str, ...]) -> dict[str, Assessed]:
    policy = {"shop.*" if name == "shop" else name: TablePolicy(jobs) for name, jobs in policies.items()}
    selection = TableSelection(tables, fed, policy)
    tables_by_name = {each.table: each for each in assess(catalog, selection, Steps({})).tables}
    assert select_tables(catalog, selection).tables == list(tables_by_name)
    return tables_by_name


def test_named_tables_come_first_and_allow_every_job(catalog: Any) -> None:
    tables = assessed(catalog, "x.absent", "shop.orders")
    assert list(tables) == ["x.absent", "shop.orders"]
    assert [each.jobs for each in tables.values()] == [(), ALL]
    assert tables["x.absent"].is_absent and tables["x.absent"].error is None


def test_tables_matching_a_pattern_are_only_assessed(catalog: Any) -> None:
    tables = assessed(catalog, "*", "!*.tmp_*", "shop.orders")
    assert list(tables) == ["shop.orders", "crm.eu.people", "crm.people", "shop.items"]
    assert tables["shop.orders"].jobs == ALL
    assert tables["shop.items"].jobs == ()
    # a team may allow maintenance of its table
    assert tables["crm.people"].jobs == ("rewrite_manifests",)
    error = tables["crm.eu.people"].error
    assert error and "compaction" in error and not tables["crm.eu.people"].jobs


def test_policies_add_conditions(catalog: Any) -> None:
    tables = assessed(catalog, "shop.*", shop=("compact_data_files", "expire_snapshots"))
    jobs = ("compact_data_files", "expire_snapshots")
    assert {name: each.jobs for name, each in tables.items()} == dict.fromkeys(
        ["shop.items", "shop.orders", "shop.tmp_1"], jobs
    )


def test_tables_fed_by_ingestion_are_governed_like_targets(catalog: Any, lake: dict[str, str]) -> None:
    # neither a property nor exported changes of another table make a table a fed one
    orders = FedTable(lake, "shop.exported")
    orders.take_changes(orders, 1)
    tables = assessed(catalog, fed=("shop.*",))
    assert {name for name, each in tables.items() if each.jobs == ALL} == {"shop.items"}
    assert {name for name, each in tables.items() if not each.jobs} == {"shop.orders", "shop.tmp_1", "shop.exported"}


def logged(lake: dict[str, str], rows: Sequence[tuple[str | None, Any]], kind: pa.DataType) -> CatalogConnection:
    """Return a catalog with a query log of these rows."""
    catalog = FedTable.open(lake)
    catalog.create_namespace_if_not_exists("ops")
    names, moments = zip(*rows, strict=True)
    rows_of_log = pa.table({"read": pa.array(names, pa.string()), "at": pa.array(moments, kind)})
    catalog.create_table(LOG.table, rows_of_log.schema).append(rows_of_log)
    return get_catalog("lake")


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        (pa.timestamp("us", "UTC"), lambda moment: moment),
        (pa.timestamp("us"), lambda moment: moment.replace(tzinfo=None)),
        (pa.date32(), datetime.date),
    ],
)
def test_reads_of_the_last_week_count(lake: dict[str, str], kind: pa.DataType, of: Any) -> None:
    young, old = of(NOW - timedelta(days=6)), of(NOW - timedelta(days=8))
    rows: list[tuple[str | None, Any]] = [("shop.a", young)] * 4
    rows += [("LAKE.Shop.B", young), ("lake.shop.b", young), ("shop.c", old)]
    rows += [("other.shop.x", young), ("a", young), (None, young)]
    reads = LOG.reads(logged(lake, rows, kind), TABLES, NOW)
    assert reads == {"shop.a": 2, "shop.b": 1, "shop.c": 0}


def test_a_log_of_other_tables_proves_nothing(lake: dict[str, str]) -> None:
    catalog = logged(lake, [("shop.x", date(2026, 3, 8))], pa.date32())
    assert LOG.reads(catalog, TABLES, NOW) == {}
    with pytest.raises(SpecError, match="max_age"):
        QueryLog("ops.queries", "read", "at", 0)


def test_the_most_read_table_has_the_largest_benefit(lake: dict[str, str]) -> None:
    for name in (*TABLES, "shop.d"):
        table = FedTable(lake, name)
        for _ in range(6):
            table.ingest(None)
    logged(lake, [("shop.a", datetime.now(UTC))] * 2 + [("shop.b", datetime.now(UTC))], pa.timestamp("us", "UTC"))
    catalog: Any = SimpleNamespace(load=lambda: FedTable.open(lake))
    tables, policies = (*TABLES, "shop.d"), {"shop.d": TablePolicy(reads=7)}
    steps = Steps({"compact_data_files": {}})

    def benefits(log: QueryLog) -> list[float]:
        return [
            each.benefit for each in assess(catalog, TableSelection(tables, (), policies, query_log=log), steps).actions
        ]

    # 3 reads of 4 tables, each without five files
    assert benefits(LOG) == [13.33, 6.67, 0, 35]
    # a missing log changes nothing
    assert benefits(QueryLog("ops.nowhere", "read", "at")) == [5, 5, 5, 35]
