"""A small run of the demo like a user's, and its leftovers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from demo.environment import DAGS, variables
from demo.settings import REPOSITORY, Settings
from demo.shop import TABLES
from demo.source import start_again
from lakecdc.contract.runtime import OBJECT_STORE
from local_services.process import ANSWER_SECONDS, port_answers
from tests.conftest import interpreted
from tests.on_demand import on_demand

pytestmark = [pytest.mark.demo, pytest.mark.timeout(1800)]
ROWS = 2_000
# three hours include a governed one, which costs some starts of Spark
HOURS = on_demand((1, 3), in_ci=(1,))
CATALOGS = ["sqlite", pytest.param(OBJECT_STORE, marks=[pytest.mark.services, pytest.mark.soak])]


@pytest.fixture(scope="module", params=CATALOGS)
def catalog(request: pytest.FixtureRequest) -> str:
    """Return the value of DEMO_CATALOG."""
    return str(request.param)


@pytest.fixture(scope="module", params=HOURS)
def settings(request: pytest.FixtureRequest, catalog: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of a small demo."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    return Settings(rows=ROWS, hours=request.param, folder=folder, catalog=catalog)


@dataclass
class Shown:
    """The output and pages shown to a user.

    :param text: all printed text.
    :param runs: DAG runs by DAG, from the web page's API.
    :param log: log of the first ingest task, from the same API.
    :param code: exit code after Ctrl-C.
    """

    text: str
    runs: dict[str, list[dict[str, Any]]]
    log: str
    code: int


@pytest.fixture(scope="module")
def shown(settings: Settings) -> Shown:
    """Run the demo with the web page, read the page, and interrupt it."""
    knobs = {"DEMO_ROWS": str(ROWS), "DEMO_HOURS": str(settings.hours), "DEMO_FOLDER": str(settings.folder)}
    knobs["DEMO_CATALOG"] = settings.catalog
    paths = os.pathsep.join(filter(None, [str(REPOSITORY / "spark_jobs"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, **interpreted(), **knobs, "PYTHONPATH": paths}
    command = [sys.executable, "-m", "demo", "--ui"]
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Ctrl-C ends"):
                break
        text = "".join(lines)
        place = re.search(r"^Airflow: (\S+)  user (\S+)  password (\S+)$", text, re.MULTILINE)
        assert place, text
        runs, log = read_page(*place.groups())
        process.send_signal(signal.SIGINT)
        text += process.stdout.read()
        user_view = Shown(text, runs, log, process.wait())
        assert not port_answers(int(place[1].rpartition(":")[2]))
        return user_view
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def read_page(address: str, user: str, password: str) -> tuple[dict[str, list[dict[str, Any]]], str]:
    """Return all DAG runs, and the log of the first ingest task."""
    token = request_json(f"{address}/auth/token", body={"username": user, "password": password})["access_token"]
    api = f"{address}/api/v2/dags"
    runs = {dag: request_json(f"{api}/{dag}/dagRuns", token)["dag_runs"] for dag in DAGS.values()}
    run_id = quote(runs["shop_ingest"][0]["dag_run_id"])
    log = request_json(f"{api}/shop_ingest/dagRuns/{run_id}/taskInstances/ingest/logs/1?map_index=0", token)
    return runs, json.dumps(log)


def request_json(url: str, token: str | None = None, body: dict[str, str] | None = None) -> Any:
    """Send a request to Airflow's web server."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def report(shown: Shown, settings: Settings) -> dict[str, Any]:
    """Return the report of the run."""
    return dict(json.loads(settings.report.read_text()))


def test_every_table_equals_its_source(report: dict[str, Any]) -> None:
    assert {name: table["equal_to_source"] for name, table in report["tables"].items()} == {
        table.full_name: True for table in TABLES
    }
    assert report["equal_to_source"] is True
    assert all(table["rows"] == table["rows_at_source"] > 0 for table in report["tables"].values())
    for table in report["tables"].values():
        assert table["reconciled"] == f"all {table['rows']} rows compared equal the source"


def test_governance_removes_the_deletes(report: dict[str, Any], settings: Settings) -> None:
    before = {name: table["before"] for name, table in report["tables"].items()}
    after = {name: table["after"] for name, table in report["tables"].items()}
    # the hours without governance, and those with it
    assert before["shop.orders"]["equality_deletes"] > 0
    is_governed = bool(settings.governed_hours)
    assert (before["shop.orders"]["deletion_vectors"] > 0) == is_governed
    assert (before["shop.order_lines"]["position_deletes"] > 0) == is_governed
    assert {table["equality_deletes"] for table in after.values()} == {0}
    assert all(after[name]["data_files"] < before[name]["data_files"] for name in after)
    assert all(table["scan_seconds"] > 0 and table["point_seconds"] > 0 for table in after.values())


def test_every_step_has_its_line(shown: Shown) -> None:
    steps = [line for line in shown.text.splitlines() if line.startswith("[") and line.endswith("...")]
    numbers = [line[1:].split("/")[0].strip() for line in steps]
    assert numbers == [str(number) for number in range(1, len(steps) + 1)]
    assert steps[-1].startswith(f"[{len(steps)}/{len(steps)}]")
    assert all(table.full_name in shown.text for table in TABLES)


def test_the_leftovers_suffice_for_another_comparison(report: dict[str, Any], settings: Settings) -> None:
    assert {path.name for path in settings.expected.iterdir()} == {f"{table.name}.parquet" for table in TABLES}
    source = start_again(settings)
    try:
        with source.connect() as session:
            for table in TABLES:
                row = session.execute(f"SELECT count(*) FROM {table.full_name}").fetchone()
                assert row == (report["tables"][table.full_name]["rows"],)
    finally:
        source.stop()


def test_the_web_page_shows_the_runs_and_their_logs(shown: Shown, settings: Settings) -> None:
    assert {dag: len(dag_runs) for dag, dag_runs in shown.runs.items()} == {
        "shop_ingest": settings.hours + 1,
        "shop_hourly_governance": len(settings.governed_hours) + 1,
        "shop_nightly_governance": 1,
        "shop_reconcile": 1,
    }
    assert {run["state"] for dag_runs in shown.runs.values() for run in dag_runs} == {"success"}
    # DAG.test would show the logical date as their start, months ago
    assert all(run["start_date"] > "2026-01-03" for dag_runs in shown.runs.values() for run in dag_runs)
    assert "Spark-Submit cmd" in shown.log


def test_an_interrupt_ends_everything_cleanly(shown: Shown, settings: Settings) -> None:
    assert shown.code == 0
    assert str(settings.report) in shown.text
    assert not (settings.postgres_data / "postmaster.pid").exists()


@pytest.mark.soak
def test_a_failed_run_names_its_log(tmp_path: Path) -> None:
    from demo.dags import DagRunner, DemoError
    from demo.environment import prepare

    broken = Settings(rows=ROWS, hours=1, folder=tmp_path / "demo")
    broken.logs.mkdir(parents=True)
    environment = variables(broken, 1)
    prepare(broken, environment)
    with DagRunner(broken, environment) as runner, pytest.raises(DemoError, match="shop_ingest ended as failed") as e:
        runner.run("ingest", 0)
    assert e.value.log == broken.logs / "01-ingest.log"
    assert "127.0.0.1" in e.value.excerpt()
