"""A day of three tables: writers of different habits, and governance by what the tasks of its DAGs do."""

from __future__ import annotations

# first of all: it points Airflow at an empty home before anything imports Airflow
import tests.airflow_provider_lakecdc.home as home  # isort: skip

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airflow_provider_lakecdc.health import health_of
from airflow_provider_lakecdc.operators.assess_tables import AssessTablesOperator
from airflow_provider_lakecdc.operators.plan import PlanOperator, one_task, tasks_of
from airflow_provider_lakecdc.templates import hourly_governance_dag, nightly_governance_dag, parse_config
from benchmarks.lakes import Writer, create
from lakecdc.contract.spec import GOVERN, parse_spec
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.metadata.health import TableHealth
from lakecdc.metadata.plan import Plan
from lakecdc.run import run, work_of
from tests.conftest import Lake

HOURS, MAX_WAIT = 24, 6
HOUR_MS = 3_600_000
# enough for one job of an hour
BUDGET_CORE_SECONDS = 1.0
MOMENTS = {"timestamp-ms", "last-updated-ms"}


@dataclass
class Fed:
    """A table, and the rows that it should have."""

    lake: Lake
    name: str
    rows: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        create(self.lake.spark, f"lake.{self.name}")

    def append(self, count: int, files: int) -> None:
        """Add rows, by a commit of so many files."""
        low = max(self.rows, default=-1) + 1
        parts = np.array_split(np.arange(low, low + count), files)
        writer = Writer(self.lake.table(self.name))
        self._commit(RowChanges([writer.rows(part, "new") for part in parts]))
        self.rows |= {id: f"new {id}" for id in range(low, low + count)}

    def upsert(self, keys: range, text: str) -> None:
        """Change rows as ingestion does."""
        ids, writer = np.array(keys), Writer(self.lake.table(self.name))
        self._commit(RowChanges([writer.rows(ids, text)], [writer.deletes(ids)]))
        self.rows |= {id: f"{text} {id}" for id in keys}

    def age(self) -> None:
        """Make all that has happened an hour older."""
        location = self.lake.pyiceberg().load_table(self.name).metadata_location
        path = Path(location.removeprefix("file:").replace("//", "/"))
        path.write_text(json.dumps(_older(json.loads(path.read_text()))))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    @property
    def health(self) -> TableHealth:
        found = health_of(self.lake.pyiceberg().load_table(self.name))
        assert found is not None
        return found

    def _commit(self, changes: RowChanges) -> None:
        append_changes(self.lake.table(self.name), changes, PositionFence(None))


def _older(found: Any) -> Any:
    """Metadata whose moments were an hour earlier."""
    if isinstance(found, list):
        return [_older(each) for each in found]
    if not isinstance(found, dict):
        return found
    return {key: each - HOUR_MS if key in MOMENTS else _older(each) for key, each in found.items()}


def govern(lake: Lake, dag: Any) -> Plan:
    """What the tasks of a governance DAG do."""
    assess, plan = dag.get_task("assess"), dag.get_task("plan")
    assert isinstance(assess, AssessTablesOperator) and isinstance(plan, PlanOperator) and plan.options is not None
    found = assess.assessed()
    chosen = plan.chosen(found)
    for task in one_task(tasks_of(chosen, found, plan.jobs), plan.options):
        given = task[GOVERN]
        spec = lake.spec(GOVERN, *given["tables"], options={"steps": given["steps"]})
        report = run(parse_spec(spec), work_of(GOVERN))
        assert report.exit_code() == 0, report
    return chosen


def test_a_day_on_a_small_budget(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    home.migrate()
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "iceberg", "extra": lake.properties}))
    events, orders, quiet = (Fed(lake, lake.new_name(stem)) for stem in ("events", "orders", "quiet"))
    tables = (events, orders, quiet)
    config = parse_config(
        {
            "catalog_conn_id": "lake",
            "tables": [table.name for table in tables],
            "policy": {"*": {"max_wait": MAX_WAIT * 3600}},
            "budgets": {"hourly_governance": BUDGET_CORE_SECONDS / 60},
            "one_application": True,
        }
    )
    hourly, nightly = hourly_governance_dag(config), nightly_governance_dag(config)
    for table in tables:
        table.append(200, files=2)
    waited = dict.fromkeys((table.name for table in tables), 0)
    plans, debts = [], []
    for hour in range(HOURS):
        events.append(20, files=2)
        # old and new keys
        orders.upsert(range(180 + 2 * hour, 220 + 2 * hour), f"hour {hour}")
        if hour in (2, 11):
            quiet.upsert(range(10), f"hour {hour}")
        plans.append(govern(lake, hourly))
        healths = {table.name: table.health for table in tables}
        for table in tables:
            waited[table.name] = waited[table.name] + 1 if healths[table.name].equality_delete_files else 0
            # it is done in the first run after it has become due
            assert waited[table.name] <= MAX_WAIT + 1, (hour, table.name)
            table.age()
        # 24 delete files of orders would apply some 300 times
        debts.append(sum(health.delete_read_cost for health in healths.values()))
    # it did not suffice for all, and something had to be done at last
    assert sum(bool(plan.skipped) for plan in plans) > HOURS // 3
    assert any(action.due and action.table == quiet.name for plan in plans for action in plan.chosen)
    assert max(debts) <= 20
    govern(lake, nightly)
    for table in tables:
        assert table.health.score > 80 and table.health.equality_delete_files == 0, table.health.facts()
        assert sorted(lake.duckdb_rows(table.name, "id, name")) == sorted(table.rows.items())
