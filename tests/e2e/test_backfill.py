"""Backfills through JDBC as a user makes them: ``airflow backfill create`` under a real scheduler, with real Spark."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.settings import CATALOG, Settings
from demo.web import WebPage
from tests.readers import duckdb_rows

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

DAG = "lakecdc_ingest"
DAG_FILE = """
from airflow_provider_lakecdc.templates import ingest_dag, load_config

dag = ingest_dag(load_config())
"""
_SECONDS = 800.0


class Shop:
    """A table of orders in SQLite, its copy in the lake, and an Airflow that feeds it by the day.

    :param settings: where everything lies.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.source = sqlite3.connect(settings.folder / "shop.db", isolation_level=None)
        self.source.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, changed TIMESTAMP)")
        self.page: WebPage | None = None

    def set(self, number: int, state: str, moment: str) -> None:
        """Put an order into a state at the source."""
        self.source.execute("INSERT OR REPLACE INTO orders VALUES (?, ?, ?)", (number, state, moment))

    def rows(self) -> list[tuple[Any, ...]]:
        """Orders at the source."""
        return self.source.execute("SELECT id, state FROM orders ORDER BY id").fetchall()

    def copied(self) -> list[tuple[Any, ...]]:
        """Orders in the lake, read by DuckDB."""
        with sqlite3.connect(self.settings.catalog_file) as catalog:
            found = catalog.execute("SELECT metadata_location FROM iceberg_tables WHERE table_name = 'orders'")
            ((location,),) = found.fetchall()
        return sorted(duckdb_rows(location, "id, state"))

    def environment(self) -> dict[str, str]:
        """That of Airflow."""
        home = self.settings.airflow_home
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "LAKECDC_"))}
        catalog = {"conn_type": "iceberg", "extra": {**self.settings.catalog_properties, "catalog_name": CATALOG}}
        return {
            **kept,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW_CONN_LAKE": json.dumps(catalog),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            # more than one run could use, so that nothing but the DAG keeps them apart
            "AIRFLOW__CORE__PARALLELISM": "4",
            "LAKECDC_CONFIG": str(home / "lakecdc.json"),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }

    def airflow(self, *arguments: str) -> None:
        """Run Airflow's command."""
        command = [sys.executable, "-m", "airflow", *arguments]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def backfill(self, *options: str) -> None:
        """Make a backfill of the first three days of the year."""
        days = ("--from-date", "2026-01-01", "--to-date", "2026-01-03")
        # the scheduler notices some time after the last run that a backfill is complete, and there is but one at a time
        self._once(self._no_backfill_goes_on)
        self.airflow("backfill", "create", "--dag-id", DAG, *days, *options)

    def ask(self, path: str) -> Any:
        """Ask Airflow's REST API for what there is of the DAG."""
        return self._get(f"/dags/{DAG}{path}")

    def tasks(self, tries: int) -> list[dict[str, Any]]:
        """The ingest tasks of all runs by their start, as soon as every run has ended.

        :param tries: how often each task of the backfill has been tried by then.
        """
        runs = self._once(lambda: self._ended(tries))
        assert {run["state"] for run in runs} == {"success"}, runs
        found = self.ask("/dagRuns/~/taskInstances?task_id=ingest")["task_instances"]
        return sorted(found, key=lambda task: str(task["start_date"]))

    def serve(self, page: WebPage) -> None:
        """Take up an Airflow that runs, and turn the DAG on once it is known there."""
        self.page, self._login = page, {"Authorization": f"Bearer {page.token()}"}
        self._once(lambda: self.ask("").get("dag_id"))
        self.airflow("dags", "unpause", "--yes", DAG)

    def _get(self, path: str) -> Any:
        assert self.page is not None
        answer = httpx.get(f"{self.page.address}/api/v2{path}", headers=self._login, timeout=60)
        return answer.json() if answer.is_success else {}

    def _no_backfill_goes_on(self) -> bool:
        found = self._get(f"/backfills?dag_id={DAG}")
        return "backfills" in found and all(backfill["completed_at"] for backfill in found["backfills"])

    def _ended(self, tries: int) -> Any:
        runs = self.ask("/dagRuns").get("dag_runs", [])
        tasks = self.ask("/dagRuns/~/taskInstances?task_id=ingest").get("task_instances", [])
        of_backfill = [task["try_number"] for task in tasks if task["logical_date"] < "2026-01-04"]
        is_over = of_backfill == [tries] * 3 and all(run["state"] in ("success", "failed") for run in runs)
        return runs if is_over else None

    def _once(self, look: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + _SECONDS
        while not (found := look()):
            assert time.monotonic() < deadline, self.ask("/dagRuns/~/taskInstances")
            time.sleep(2)
        return found


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop with three days of orders."""
    settings = Settings(folder=tmp_path)
    found = Shop(settings)
    (settings.airflow_home / "dags").mkdir(parents=True)
    settings.logs.mkdir()
    (settings.airflow_home / "dags" / "ingest.py").write_text(DAG_FILE)
    config = {
        "catalog_conn_id": CATALOG,
        "source": {"type": "jdbc", "url": f"jdbc:sqlite:{tmp_path}/shop.db", "cursor_column": "changed"},
        "targets": [{"table": "shop.orders", "source_table": "orders"}],
        "schedules": {"ingest": "0 0 * * *"},
        "retries": 0,
    }
    (settings.airflow_home / "lakecdc.json").write_text(json.dumps(config))
    found.airflow("db", "migrate")
    with WebPage(settings, found.environment()) as page:
        found.serve(page)
        yield found
    found.source.close()


def one_by_one(tasks: list[dict[str, Any]]) -> bool:
    """Tell whether each has begun after the one before it had ended."""
    pairs = zip(tasks, tasks[1:], strict=False)
    return len(tasks) >= 3 and all(before["end_date"] <= after["start_date"] for before, after in pairs)


def test_its_runs_work_one_by_one_and_read_their_days_again_when_asked_to(shop: Shop) -> None:
    for day in (1, 2, 3):
        shop.set(day, "new", f"2026-01-0{day} 10:00:00.000")
    shop.set(4, "of no day of these", "2026-01-04 00:00:00.000")
    shop.backfill()
    assert one_by_one(shop.tasks(1))
    assert shop.copied() == shop.rows()[:3]
    # one day has got a row more and another one has changed without its cursor
    shop.set(5, "late", "2026-01-01 11:00:00.000")
    shop.set(2, "corrected", "2026-01-02 10:00:00.000")
    shop.backfill("--reprocess-behavior", "completed")
    assert one_by_one(shop.tasks(2))
    assert shop.copied() == [row for row in shop.rows() if row[0] != 4]
