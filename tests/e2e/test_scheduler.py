"""One Airflow with all of its processes: tasks ended by people or the machine, watchers, complete days, backfills."""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from demo.settings import Settings
from local_services.paths import REPOSITORY
from tests.airflow_provider_lakecdc.tables import FedTable
from tests.e2e.hours import DAG, DAGS, GOVERNED, Hours, one_by_one
from tests.e2e.served_airflow import ServedAirflow
from tests.lakecdc.ingest.histories import History, lines
from tests.on_demand import on_demand
from tests.readers import duckdb_rows

pytestmark = [pytest.mark.services, pytest.mark.timeout(3600)]

TABLE = "shop.orders"
# each try waits until its flag is removed
ENDED = """
from datetime import timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher
from airflow_provider_lakecdc.operators.ingest import IngestOperator
from airflow_provider_lakecdc.triggers.row_change import RowChangeTrigger

with DAG("fed", schedule=None):
    IngestOperator(
        task_id="ingest",
        source={"type": "files", "path": "FOLDER/*.jsonl", "format": "debezium-json", "records": "kafka"},
        targets=[{"table": "shop.orders", "key": ["id"], "source_table": "shop.t"}],
        catalog_conn_id="lake",
        env_vars={"LAKECDC_FAILPOINT": "after_staging=pause:FOLDER/try-{{ ti.try_number }}"},
        retries=3,
        retry_delay=timedelta(seconds=1),
    )

trigger = RowChangeTrigger(table="shop.watched", catalog_conn_id="lake", poll_interval=0.5)
watched = Asset("watched", watchers=[AssetWatcher(name="watched_rows", trigger=trigger)])
with DAG("refreshed", schedule=[watched]):
    EmptyOperator(task_id="refresh")
"""


def complete_days() -> str:
    """Return the DAGs of the page about complete days, on a separate table; the newest day runs at once."""
    page = (REPOSITORY / "docs" / "guides" / "dbt.md").read_text().partition("## Complete days")[2]
    dags = "".join(re.findall(r"^```python dag\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    return dags.replace('"shop.orders"', '"shop.days"').replace("run_offset=-1", "run_offset=-1, run_immediately=True")


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedAirflow]:
    """Serve an Airflow with all DAGs."""
    settings = Settings(folder=tmp_path_factory.mktemp("airflow"))
    # more than one run could use, so that only the DAG separates the runs of a backfill
    variables = {"AIRFLOW__CORE__PARALLELISM": "4", **Hours.configuration(settings)}
    dags = ENDED.replace("FOLDER", str(settings.folder)) + DAGS + complete_days()
    served = ServedAirflow(settings, dags, variables)
    with served.served("fed", DAG):
        yield served


class Feeding:
    """A run of the ingest DAG.

    :param airflow: its Airflow.
    """

    def __init__(self, airflow: ServedAirflow) -> None:
        self._airflow, self._folder = airflow, airflow.settings.folder
        self._run_id = airflow.send("POST", "/dags/fed/dagRuns", logical_date=None)["dag_run_id"]
        self._run = f"/dags/fed/dagRuns/{self._run_id}"
        self._path = f"{self._run}/taskInstances/ingest"

    def wait_for_try(self, number: int) -> list[int]:
        """Return the process ids of the application, once the try of this number has staged its files."""
        self._airflow.once(lambda: self._has_staged(number))
        return self._application()

    def let_go(self, number: int) -> None:
        """Let the application of a try continue."""
        (self._folder / f"try-{number}").unlink()

    def wait_until_gone(self) -> None:
        """Wait until no application is left."""
        self._airflow.once(lambda: not self._application())

    def wait_for_success(self) -> None:
        """Wait until the task has succeeded."""
        self._airflow.once(lambda: self._airflow.get(self._path).get("state") == "success")

    def mark_failed(self) -> None:
        """Mark the task as failed, like a person does, and wait until its run has failed."""
        self._airflow.send("PATCH", self._path, new_state="failed")
        # Airflow's scheduler ends the run even if the task is cleared meanwhile, and leaves the task without a state
        self._airflow.once(lambda: self._airflow.get(self._run).get("state") == "failed")

    def clear(self) -> None:
        """Clear the task, like a person does."""
        only = {"dag_run_id": self._run_id, "task_ids": ["ingest"]}
        self._airflow.send("POST", "/dags/fed/clearTaskInstances", dry_run=False, only_failed=False, **only)

    def _has_staged(self, number: int) -> bool:
        task = self._airflow.get(self._path)
        assert task.get("try_number", number) <= number, f"a try ended by itself: {task}"
        return (self._folder / f"try-{number}").exists()

    def _application(self) -> list[int]:
        """Return the process ids of Java and of the driver."""
        documents = f"file://{self._folder}/airflow/lakecdc/documents"
        return [
            int(each.name)
            for each in Path("/proc").iterdir()
            if each.name.isdigit() and any(word.startswith(documents) for word in _words(each))
        ]


def _words(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def java_of(processes: list[int]) -> int:
    """Return the process id of Java in an application; ids grow until the system reuses them."""
    (java,) = [each for each in processes if Path(_words(Path(f"/proc/{each}"))[0]).name == "java"]
    return java


def parent(process: int) -> int:
    """Return the id of a process' parent."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_ended_tasks_leave_no_application_and_no_duplicate_row(airflow: ServedAirflow) -> None:
    history = History(random.Random(5))
    for key in range(12):
        history.insert(key)
    (airflow.settings.folder / "0.jsonl").write_text(lines(history.events))
    feeding = Feeding(airflow)

    assert len(feeding.wait_for_try(1)) == 2
    feeding.mark_failed()
    feeding.wait_until_gone()
    orders = FedTable.open(airflow.settings.catalog_properties)
    assert orders.load_table(TABLE).current_snapshot() is None

    feeding.clear()
    feeding.wait_for_try(2)
    feeding.clear()
    os.kill(parent(java_of(feeding.wait_for_try(3))), signal.SIGKILL)
    feeding.wait_for_try(4)
    # the application that lost its task commits first
    feeding.let_go(3)
    airflow.once(lambda: orders.load_table(TABLE).current_snapshot())
    feeding.let_go(4)
    feeding.wait_for_success()
    feeding.wait_until_gone()
    table = orders.load_table(TABLE)
    assert sorted(duckdb_rows(table.metadata_location, "id, name, n, doc")) == history.expected()
    assert len(table.metadata.snapshots) == 1


@pytest.mark.parametrize(("day", "count"), on_demand([(1, 2), (2, 24)], in_ci=[(1, 2)]))
def test_runs_of_a_backfill_are_sequential_and_read_their_hours_again_on_request(
    airflow: ServedAirflow, day: int, count: int
) -> None:
    hours = Hours(airflow, day, count)
    behind, late = count, count + 1
    for hour in range(count):
        hours.set(hour, "new", hour, 10)
    hours.set(behind, "of no hour of these", count, 0)
    hours.backfill()
    assert one_by_one(hours.tasks(1))
    assert hours.copied() == hours.rows()[:behind]
    # one hour has a new row, and another one has changed without its cursor
    hours.set(late, "late", 0, 20)
    hours.set(1, "corrected", 1, 10)
    hours.backfill("--reprocess-behavior", "completed")
    assert one_by_one(hours.tasks(2))
    assert hours.copied() == [row for row in hours.rows() if row[0] != behind]


@pytest.mark.soak
def test_writes_of_a_backfill_start_governance(airflow: ServedAirflow) -> None:
    airflow.turn_on(GOVERNED)
    hours = Hours(airflow, 3, 1)
    hours.set(0, "new", 0, 10)
    hours.backfill()
    assert hours.tasks(1) and hours.governed() == {("asset_triggered", "success")}


def test_a_watcher_starts_a_dag(airflow: ServedAirflow) -> None:
    airflow.turn_on("refreshed")
    watched = FedTable(airflow.settings.catalog_properties, "shop.watched")
    committed = list[str]()

    def fired() -> Any:
        # the first check records the current state as seen
        committed.append(str(watched.ingest(None)))
        return airflow.get("/dags/refreshed/dagRuns").get("dag_runs")

    run, *_ = airflow.once(fired)
    events = f"/dags/refreshed/dagRuns/{run['dag_run_id']}/upstreamAssetEvents"
    (event, *_) = airflow.once(lambda: airflow.get(events).get("asset_events"))
    payload = event["extra"]["payload"]
    assert run["run_type"] == "asset_triggered"
    assert (payload["table"], payload["is_descendant"]) == ("shop.watched", True)
    assert {payload["snapshot_id"], payload["previous_snapshot_id"]} <= {*committed}


def test_a_complete_day_starts_a_run_with_the_day_as_its_partition_key(airflow: ServedAirflow) -> None:
    now = datetime.now(UTC)
    FedTable(airflow.settings.catalog_properties, "shop.days").ingest(now.isoformat())
    for dag in ("orders_by_day", "orders_days"):
        airflow.turn_on(dag)
    run, *_ = airflow.once(lambda: airflow.get("/dags/orders_by_day/dagRuns").get("dag_runs"))
    assert run["partition_key"] == f"{now - timedelta(days=1):%Y-%m-%d}"
