"""A job on Spark's history server, and the link to it."""

from __future__ import annotations

# first of all: it points Airflow at an empty home before anything imports Airflow
import tests.airflow_provider_lakecdc.home as home  # isort: skip

import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecdc.operators.compact_data_files import CompactDataFilesOperator
from local_services.spark_classes import INTERPRETED
from local_services.spark_cluster import HistoryServer
from tests.airflow_provider_lakecdc.conftest import connection
from tests.airflow_provider_lakecdc.conftest import context as context
from tests.airflow_provider_lakecdc.conftest import lake as lake
from tests.airflow_provider_lakecdc.tables import FedTable

pytestmark = pytest.mark.services


def test_the_link_to_sparks_page_leads_to_the_history_server_whose_jobs_name_their_tables(
    context: Any, lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.migrate()
    connection(monkeypatch, "spark_default", conn_type="spark", host="local[1]")
    names = ("shop.orders", "shop.items")
    for name in names:
        table = FedTable(lake, name)
        for _ in range(6):
            table.ingest(None)
    events = tmp_path / "events"
    events.mkdir()
    with HistoryServer(tmp_path, events) as server:
        # with and without a trailing slash
        monkeypatch.setenv("AIRFLOW__LAKECDC__HISTORY_SERVER", f"{server.address}/")
        operator = CompactDataFilesOperator(
            task_id="t",
            tables=[*names],
            catalog_conn_id="lake",
            look_first=False,
            conf={"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{events}", **INTERPRETED},
        )
        assert {facts["outcome"] for facts in operator.execute(context).values()} == {"done"}
        link = context["ti"].xcom["spark_ui"]
        assert link.startswith(f"{server.address}/history/local-")
        (application,) = _until_there(server)
        with urllib.request.urlopen(link) as page:
            assert page.status == 200 and f"compact_data_files {names[0]}" in page.read().decode()
        jobs = server.query(f"applications/{application['id']}/jobs")
        assert {f"compact_data_files {name}" for name in names} <= {job.get("description") for job in jobs}


def _until_there(server: HistoryServer) -> Any:
    """Return the applications of the server, which reads the folder every second."""
    deadline = time.monotonic() + 60
    while not (applications := server.query("applications")) and time.monotonic() < deadline:
        time.sleep(0.5)
    return applications
