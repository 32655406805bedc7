"""How often tables are read, as a table of the catalog tells it, and what that makes of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_lakecdc.governance.assess_tables import assess
from airflow_provider_lakecdc.governance.assessment import Steps
from airflow_provider_lakecdc.governance.discovery import TableSelection
from airflow_provider_lakecdc.governance.query_log import QueryLog
from lakecdc.contract.errors import SpecError
from lakecdc.metadata.policy import TablePolicy
from tests.airflow_provider_lakecdc.tables import FedTable

LOG = QueryLog("ops.queries", "read", "at")
TABLES = ["shop.a", "shop.b", "shop.c"]
NOW = datetime(2026, 3, 8, 12, tzinfo=UTC)


def logged(lake: dict[str, str], rows: Sequence[tuple[str | None, Any]], kind: pa.DataType) -> Any:
    """A catalog with a query log of these rows."""
    catalog = FedTable.open(lake)
    catalog.create_namespace_if_not_exists("ops")
    names, moments = zip(*rows, strict=True)
    found = pa.table({"read": pa.array(names, pa.string()), "at": pa.array(moments, kind)})
    catalog.create_table(LOG.table, found.schema).append(found)
    return catalog


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
    found = LOG.reads(logged(lake, rows, kind), TABLES, NOW)
    assert found == {"shop.a": 2, "shop.b": 1, "shop.c": 0}


def test_a_log_of_other_tables_tells_nothing(lake: dict[str, str]) -> None:
    catalog = logged(lake, [("shop.x", date(2026, 3, 8))], pa.date32())
    assert LOG.reads(catalog, TABLES, NOW) == {}
    with pytest.raises(SpecError, match="max_age"):
        QueryLog("ops.queries", "read", "at", 0)


def test_what_is_read_most_is_worth_most(lake: dict[str, str]) -> None:
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

    # 3 reads of 4 tables, and each is spared five files
    assert benefits(LOG) == [13.33, 6.67, 0, 35]
    # nothing can be told from a log that is not there
    assert benefits(QueryLog("ops.nowhere", "read", "at")) == [5, 5, 5, 35]
