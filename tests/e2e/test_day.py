"""A day of three tables: writers of different habits, and governance by the tasks of its DAGs."""

from __future__ import annotations

# first of all: it points Airflow at an empty home before anything imports Airflow
import tests.airflow_provider_lakecdc.home as home  # isort: skip

import json

import numpy as np
import pytest

from airflow_provider_lakecdc.templates import hourly_governance_dag, nightly_governance_dag, parse_config
from benchmarks.days import Fed, governed
from tests.conftest import Lake
from tests.on_demand import on_demand

MAX_WAIT = 6
# enough for one job per hour
BUDGET_CORE_SECONDS = 0.115


# a table of few changes is due once in that many hours, and twice in a day
@pytest.mark.parametrize("hours", on_demand((10, 24), in_ci=(10,)))
def test_a_small_budget_keeps_tables_healthy_for_a_day(lake: Lake, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    home.migrate()
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "iceberg", "extra": lake.properties}))
    catalog = lake.pyiceberg()
    names = [lake.new_name(stem) for stem in ("events", "orders", "quiet")]
    events, orders, quiet = (Fed(lake.spark, catalog, name) for name in names)
    tables = (events, orders, quiet)
    config = parse_config(
        {
            "catalog_conn_id": "lake",
            "tables": names,
            "policy": {"*": {"max_wait": MAX_WAIT * 3600}},
            "budgets": {"hourly_governance": BUDGET_CORE_SECONDS / 60},
            "one_application": True,
        }
    )
    hourly, nightly = hourly_governance_dag(config), nightly_governance_dag(config)
    for table in tables:
        table.append(200, files=2)
    waited = dict.fromkeys(names, 0)
    plans, debts = [], []
    for hour in range(hours):
        events.append(20, files=2)
        # old and new keys
        orders.upsert(np.arange(180 + 2 * hour, 220 + 2 * hour), f"hour {hour}")
        if hour in (2, 11):
            quiet.upsert(np.arange(10), f"hour {hour}")
        plans.append(governed(hourly, lake.properties)[0])
        healths = {table.name: table.health for table in tables}
        for table in tables:
            waited[table.name] = waited[table.name] + 1 if healths[table.name].equality_delete_files else 0
            # it runs in the first run after it has become due
            assert waited[table.name] <= MAX_WAIT + 1, (hour, table.name)
            table.age()
        # 24 delete files of orders would apply some 300 times
        debts.append(sum(health.delete_read_cost for health in healths.values()))
    # it did not suffice for all jobs, and some became due
    assert sum(bool(plan.skipped) for plan in plans) > hours // 3
    assert any(action.due and action.table == quiet.name for plan in plans for action in plan.chosen)
    assert max(debts) <= 40
    governed(nightly, lake.properties)
    for table in tables:
        assert table.health.score > 80 and table.health.equality_delete_files == 0, table.health.facts()
        assert sorted(lake.duckdb_rows(table.name, "id, name")) == sorted(table.rows.items())
