"""The job of a lost worker is resumed, but a cleared task runs again. YARN's REST interface is real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from airflow_provider_lakecdc.exceptions import JobConflictError
from airflow_provider_lakecdc.operators.base import REPORT_URI_KEY
from airflow_provider_lakecdc.operators.compact_data_files import CompactDataFilesOperator
from tests.airflow_provider_lakecdc.conftest import FakeSpark, TaskInstance, changed, connection

APPLICATION = "application_1700000000000_0001"


class ResourceManager(ThreadingHTTPServer):
    """The part of YARN's resource manager that the Spark provider uses."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.state = {"state": "FINISHED", "finalStatus": "SUCCEEDED"}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, ResourceManager)
        body = json.dumps({"app": {"id": APPLICATION, "diagnostics": "", **self.server.state}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def yarn(monkeypatch: pytest.MonkeyPatch, spark_submit: FakeSpark, lake: dict[str, str]) -> Iterator[ResourceManager]:
    """Start a resource manager whose jobs are finished, with a cluster-mode connection and a secret-free catalog."""
    server = ResourceManager()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": address}
    connection(monkeypatch, "spark_default", conn_type="spark", host="yarn", extra=extra)
    connection(monkeypatch, "lake", conn_type="iceberg", extra=lake)
    spark_submit.behave(output=(f"Submitted {APPLICATION}",))
    yield server
    server.shutdown()
    server.server_close()


def compact() -> CompactDataFilesOperator:
    return CompactDataFilesOperator(
        task_id="t", catalog_conn_id="lake", tables=["shop.orders"], yarn_track_via_rm_api=True
    )


@pytest.mark.usefixtures("yarn")
def test_a_cleared_task_runs_again(spark_submit: FakeSpark, context: Any) -> None:
    compact().execute(context)
    assert context["task_state_store"].values == {}
    compact().execute(changed(context, ti=TaskInstance(try_number=2)))
    assert len(spark_submit.calls) == 2


@pytest.mark.usefixtures("yarn")
def test_a_job_that_reported_a_failure_runs_again(spark_submit: FakeSpark, context: Any) -> None:
    conflict = {"shop.orders": {"outcome": "conflict", "failure_class": "conflict", "reason": "lost"}}
    spark_submit.behave(conflict, output=(APPLICATION,))
    with pytest.raises(JobConflictError):
        compact().execute(context)
    spark_submit.behave(output=(APPLICATION,))
    assert compact().execute(changed(context, ti=TaskInstance(try_number=2)))["shop.orders"]["outcome"] == "done"
    assert len(spark_submit.calls) == 2


def test_the_job_of_a_lost_worker_is_resumed_with_its_report(
    yarn: ResourceManager, spark_submit: FakeSpark, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = compact()
    # the worker dies between submitting and the end of the job
    monkeypatch.setattr(lost, "poll_until_complete", _die)
    with pytest.raises(SystemExit):
        lost.execute(context)
    stored = context["task_state_store"].values
    assert stored[lost.external_id_key] == APPLICATION and "try-1" in stored[REPORT_URI_KEY]

    facts_by_table = compact().execute(changed(context, ti=TaskInstance(try_number=2)))
    assert facts_by_table["shop.orders"]["outcome"] == "done"
    assert len(spark_submit.calls) == 1
    assert stored == {}


def _die(*_: Any) -> None:
    raise SystemExit(137)
