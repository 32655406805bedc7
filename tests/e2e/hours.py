"""Hours of a table that is fed through JDBC, filled like users do: by ``airflow backfill create``."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from demo.settings import CATALOG, Settings
from tests.e2e.served_airflow import ServedAirflow
from tests.readers import duckdb_rows

DAG = "lakecdc_ingest"
GOVERNED = "lakecdc_hourly_governance"
DAGS = """
from datetime import datetime

from airflow_provider_lakecdc.templates import hourly_governance_dag, ingest_dag, load_config

hourly = ingest_dag(load_config())
# with no hour of its own that is over, the clock adds no run
hourly.end_date = datetime(2026, 1, 4)
governed = hourly_governance_dag(load_config())
"""


class Hours:
    """Hours of a day in which orders change their state in SQLite, and an Airflow that copies them by the hour.

    :param airflow: the Airflow.
    :param day: day of January.
    :param count: number of hours, from the day's first one.
    """

    def __init__(self, airflow: ServedAirflow, day: int, count: int) -> None:
        self.airflow, self.day, self.count = airflow, day, count
        self._source = sqlite3.connect(airflow.settings.folder / "shop.db", isolation_level=None)
        self._source.execute(
            "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, state TEXT, changed TIMESTAMP)"
        )

    @staticmethod
    def configuration(settings: Settings) -> dict[str, str]:
        """Write the configuration of the DAGs; return the variable with its path."""
        config = {
            "catalog_conn_id": CATALOG,
            "source": {"type": "jdbc", "url": f"jdbc:sqlite:{settings.folder}/shop.db", "cursor_column": "changed"},
            "targets": [{"table": "hours.orders", "source_table": "orders"}],
            "schedules": {
                "ingest": "0 * * * *",
                "hourly_governance": None,
                "assets": {"hourly_governance": ["tables"]},
            },
            "retries": 0,
        }
        file = settings.folder / "lakecdc.json"
        file.write_text(json.dumps(config))
        return {"LAKECDC_CONFIG": str(file)}

    def set(self, number: int, state: str, hour: int, minute: int) -> None:
        """Set the state of the day's order at the source, at a moment that may be after the day."""
        moment = f"2026-01-{self.day + hour // 24:02} {hour % 24:02}:{minute:02}:00.000"
        self._source.execute("INSERT OR REPLACE INTO orders VALUES (?, ?, ?)", (100 * self.day + number, state, moment))

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the orders of the day at the source."""
        return self._own(self._source.execute("SELECT id, state FROM orders").fetchall())

    def copied(self) -> list[tuple[Any, ...]]:
        """Return the orders of the day in the lake, read by DuckDB."""
        with sqlite3.connect(self.airflow.settings.catalog_file) as catalog:
            query = catalog.execute(
                "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = 'hours' AND table_name = 'orders'"
            )
            ((location,),) = query.fetchall()
        return self._own(duckdb_rows(location, "id, state"))

    def backfill(self, *options: str) -> None:
        """Make a backfill of the hours."""
        hours = ("--from-date", self._at(0), "--to-date", self._at(self.count - 1))
        # the scheduler notices a backfill's end some time after its last run, and only one backfill can run
        self.airflow.once(self._no_backfill_goes_on)
        self.airflow.run("backfill", "create", "--dag-id", DAG, *hours, *options)

    def governed(self) -> Any:
        """Wait for the runs of governance to end; return their triggers and states."""
        return self.airflow.once(self._governed)

    def tasks(self, tries: int) -> list[dict[str, Any]]:
        """Wait for the runs of the hours to end; return their ingest tasks by start.

        :param tries: expected number of tries of each task.
        """
        runs = self.airflow.once(lambda: self._ended(tries), seconds=300 * self.count)
        assert {run["state"] for run in runs} == {"success"}, runs
        return sorted(self._ingested(), key=lambda task: str(task["start_date"]))

    def _own(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return sorted((number % 100, state) for number, state in rows if number // 100 == self.day)

    def _at(self, hour: int) -> str:
        return f"2026-01-{self.day:02}T{hour:02}:00:00"

    def _get(self, path: str, dag: str = DAG) -> Any:
        return self.airflow.get(f"/dags/{dag}{path}")

    def _no_backfill_goes_on(self) -> bool:
        answer = self.airflow.get(f"/backfills?dag_id={DAG}")
        return "backfills" in answer and all(backfill["completed_at"] for backfill in answer["backfills"])

    def _governed(self) -> Any:
        runs = self._get("/dagRuns", GOVERNED).get("dag_runs", [])
        return {(run["run_type"], run["state"]) for run in runs} if runs and all(map(_over, runs)) else None

    def _ended(self, tries: int) -> Any:
        runs = self._of_day(self._get("/dagRuns").get("dag_runs", []))
        is_over = [task["try_number"] for task in self._ingested()] == [tries] * self.count and all(map(_over, runs))
        return runs if is_over else None

    def _ingested(self) -> list[dict[str, Any]]:
        return self._of_day(self._get("/dagRuns/~/taskInstances?task_id=ingest").get("task_instances", []))

    def _of_day(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [each for each in rows if each["logical_date"].startswith(f"2026-01-{self.day:02}")]


def one_by_one(tasks: list[dict[str, Any]]) -> bool:
    """Return whether each began after the previous one had ended."""
    pairs = zip(tasks, tasks[1:], strict=False)
    return len(tasks) > 1 and all(before["end_date"] <= after["start_date"] for before, after in pairs)


def _over(run: dict[str, Any]) -> bool:
    return run["state"] in ("success", "failed")
