"""Backfills through JDBC as a user makes them: ``airflow backfill create`` under a real scheduler, with real Spark.

What they write starts governance, which is scheduled on the tables' assets.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.settings import CATALOG, Settings
from tests.e2e.served_airflow import ServedAirflow
from tests.readers import duckdb_rows

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

DAG = "lakecdc_ingest"
DAG_FILE = """
from airflow_provider_lakecdc.templates import hourly_governance_dag, ingest_dag, load_config

fed = ingest_dag(load_config())
governed = hourly_governance_dag(load_config())
"""
GOVERNED = "lakecdc_hourly_governance"


class Shop:
    """A table of orders in SQLite, its copy in the lake, and an Airflow that feeds it by the hour.

    :param airflow: the Airflow.
    :param hours: how many of the first day of the year are filled.
    """

    def __init__(self, airflow: ServedAirflow, hours: int) -> None:
        self.airflow = airflow
        self.hours = hours
        self.source = sqlite3.connect(airflow.settings.folder / "shop.db", isolation_level=None)
        self.source.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, changed TIMESTAMP)")

    def set(self, number: int, state: str, moment: str) -> None:
        """Put an order into a state at the source."""
        self.source.execute("INSERT OR REPLACE INTO orders VALUES (?, ?, ?)", (number, state, moment))

    def rows(self) -> list[tuple[Any, ...]]:
        """Orders at the source."""
        return self.source.execute("SELECT id, state FROM orders ORDER BY id").fetchall()

    def copied(self) -> list[tuple[Any, ...]]:
        """Orders in the lake, read by DuckDB."""
        with sqlite3.connect(self.airflow.settings.catalog_file) as catalog:
            found = catalog.execute("SELECT metadata_location FROM iceberg_tables WHERE table_name = 'orders'")
            ((location,),) = found.fetchall()
        return sorted(duckdb_rows(location, "id, state"))

    def backfill(self, *options: str) -> None:
        """Make a backfill of the hours."""
        hours = ("--from-date", at(0), "--to-date", at(self.hours - 1))
        # the scheduler notices some time after the last run that a backfill is complete, and there is but one at a time
        self.airflow.once(self._no_backfill_goes_on)
        self.airflow.run("backfill", "create", "--dag-id", DAG, *hours, *options)

    def ask(self, path: str, dag: str = DAG) -> Any:
        """Ask Airflow's REST API for what there is of a DAG."""
        return self.airflow.get(f"/dags/{dag}{path}")

    def governed(self) -> Any:
        """What has started the runs of governance and what has become of them, as soon as all have ended."""
        return self.airflow.once(self._governed)

    def tasks(self, tries: int) -> list[dict[str, Any]]:
        """The ingest tasks of all runs by their start, as soon as every run has ended.

        :param tries: how often each task of the backfill has been tried by then.
        """
        runs = self.airflow.once(lambda: self._ended(tries))
        assert {run["state"] for run in runs} == {"success"}, runs
        found = self.ask("/dagRuns/~/taskInstances?task_id=ingest")["task_instances"]
        return sorted(found, key=lambda task: str(task["start_date"]))

    def _no_backfill_goes_on(self) -> bool:
        found = self.airflow.get(f"/backfills?dag_id={DAG}")
        return "backfills" in found and all(backfill["completed_at"] for backfill in found["backfills"])

    def _governed(self) -> Any:
        runs = self.ask("/dagRuns", GOVERNED).get("dag_runs", [])
        return {(run["run_type"], run["state"]) for run in runs} if runs and all(map(_over, runs)) else None

    def _ended(self, tries: int) -> Any:
        runs = self.ask("/dagRuns").get("dag_runs", [])
        tasks = self.ask("/dagRuns/~/taskInstances?task_id=ingest").get("task_instances", [])
        of_backfill = [task["try_number"] for task in tasks if task["logical_date"] < "2026-01-02"]
        is_over = of_backfill == [tries] * self.hours and all(map(_over, runs))
        return runs if is_over else None


def at(hour: int) -> str:
    """The beginning of an hour as Airflow's command reads it."""
    return f"2026-01-01T{hour:02}:00:00"


def moment(hour: int, minute: int, day: int = 1) -> str:
    """A moment of January as the source writes it."""
    return f"2026-01-{day:02} {hour:02}:{minute:02}:00.000"


def _over(run: dict[str, Any]) -> bool:
    return run["state"] in ("success", "failed")


@pytest.fixture(params=[3, 24])
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A shop of which some hours are to be filled."""
    config = {
        "catalog_conn_id": CATALOG,
        "source": {"type": "jdbc", "url": f"jdbc:sqlite:{tmp_path}/shop.db", "cursor_column": "changed"},
        "targets": [{"table": "shop.orders", "source_table": "orders"}],
        "schedules": {
            "ingest": "0 * * * *",
            "hourly_governance": None,
            "assets": {"hourly_governance": ["tables"]},
        },
        "retries": 0,
    }
    (tmp_path / "lakecdc.json").write_text(json.dumps(config))
    # more than one run could use, so that nothing but the DAG keeps them apart
    variables = {"AIRFLOW__CORE__PARALLELISM": "4", "LAKECDC_CONFIG": str(tmp_path / "lakecdc.json")}
    airflow = ServedAirflow(Settings(folder=tmp_path), DAG_FILE, variables)
    found = Shop(airflow, request.param)
    with airflow.served(GOVERNED, DAG):
        yield found
    found.source.close()


def one_by_one(tasks: list[dict[str, Any]]) -> bool:
    """Tell whether each has begun after the one before it had ended."""
    pairs = zip(tasks, tasks[1:], strict=False)
    return len(tasks) >= 3 and all(before["end_date"] <= after["start_date"] for before, after in pairs)


def test_its_runs_work_one_by_one_and_read_their_hours_again_when_asked_to(shop: Shop) -> None:
    for hour in range(shop.hours):
        shop.set(hour, "new", moment(hour, 10))
    behind = shop.hours
    shop.set(behind, "of no hour of these", moment(behind % 24, 0, day=1 + behind // 24))
    shop.backfill()
    assert one_by_one(shop.tasks(1))
    assert shop.copied() == shop.rows()[:behind]
    # one hour has got a row more and another one has changed without its cursor
    shop.set(behind + 1, "late", moment(0, 20))
    shop.set(1, "corrected", moment(1, 10))
    shop.backfill("--reprocess-behavior", "completed")
    assert one_by_one(shop.tasks(2))
    assert shop.copied() == [row for row in shop.rows() if row[0] != behind]
    assert shop.governed() == {("asset_triggered", "success")}
