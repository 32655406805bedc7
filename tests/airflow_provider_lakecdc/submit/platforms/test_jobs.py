"""Operators with a connection to a platform: documents and library in object storage, reattaching, killing."""

from __future__ import annotations

import asyncio
import json
import zipfile
from collections.abc import Iterator, Sequence
from io import BytesIO
from pkgutil import resolve_name
from typing import Any

import pytest
from airflow.sdk import ObjectStoragePath
from airflow.sdk.exceptions import TaskDeferred
from airflow.triggers.base import BaseTrigger
from fsspec import filesystem

from airflow_provider_lakecdc.checks.deployment import documents, spark_connection
from airflow_provider_lakecdc.exceptions import JobBadInputError, JobClusterError, LakecdcJobError
from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator
from airflow_provider_lakecdc.submit import submitter
from airflow_provider_lakecdc.submit.job_run import JOB_RUN_KEY, SPARK_UI_KEY, JobRun
from airflow_provider_lakecdc.submit.launcher import SparkTarget
from airflow_provider_lakecdc.submit.platforms.livy import LivyBatches
from lakecdc.contract.findings import Finding
from tests.airflow_provider_lakecdc.conftest import TaskInstance, changed, connection
from tests.airflow_provider_lakecdc.submit.platforms.fakes import Livy
from tests.airflow_provider_lakecdc.tables import FedTable

DOCUMENTS = "memory://lake/documents"
REPORT = {
    "version": 1, "job": "rewrite_delete_files", "started_at": "2026-01-01T00:00:00.000+00:00",
    "finished_at": "2026-01-01T00:00:09.000+00:00", "spark_application_id": "application_1_1",
}  # fmt: skip


@pytest.fixture
def livy(monkeypatch: pytest.MonkeyPatch, lake: dict[str, str]) -> Iterator[Livy]:
    """Start a Livy server whose batches act like the jobs: read the spec, write the report."""

    def job(arguments: Sequence[str]) -> None:
        given = dict(zip(arguments[::2], arguments[1::2], strict=True))
        spec = json.loads(ObjectStoragePath(given["--spec"]).read_text())
        tables = [{"table": table, "outcome": "done"} for table in spec["tables"]]
        if server.state == "success":
            ObjectStoragePath(given["--report"]).write_text(json.dumps({**REPORT, "tables": tables}))

    connection(monkeypatch, "spark_default", conn_type="livy", host="http://livy", port=8998)
    connection(monkeypatch, "lake", conn_type="iceberg", extra=lake)
    monkeypatch.setattr(submitter.Submitter, "poll_seconds", 0.0)
    server = Livy(monkeypatch, job)
    yield server
    filesystem("memory").store.clear()


def rewrite(**arguments: Any) -> RewriteDeleteFilesOperator:
    defaults = {"catalog_conn_id": "lake", "tables": ["shop.orders"], "documents_uri": DOCUMENTS}
    return RewriteDeleteFilesOperator(task_id="t", **{**defaults, **arguments})


def test_the_job_reads_everything_from_object_storage(livy: Livy, context: Any) -> None:
    facts = rewrite(conf={"spark.a": "b"}, executor_memory="4g", env_vars={"A": "b"}).execute(context)
    assert facts["shop.orders"]["outcome"] == "done"
    sent = livy.batches[0]
    assert sent["conf"]["spark.executor.memory"] == "4g" and sent["conf"]["spark.a"] == "b"
    assert b"rewrite_delete_files" in ObjectStoragePath(sent["file"]).read_bytes()
    with zipfile.ZipFile(BytesIO(ObjectStoragePath(sent["conf"]["spark.submit.pyFiles"]).read_bytes())) as library:
        assert "lakecdc/runtime/run.py" in library.namelist()
    assert context["ti"].xcom[SPARK_UI_KEY] == "http://yarn:8088/proxy/application_1_1/"
    assert context["task_state_store"].values == {}


def test_the_rendered_submission_equals_the_sent_one(livy: Livy, context: Any) -> None:
    shown = rewrite().render(context)["command"]
    assert not livy.batches
    rewrite().execute(context)
    assert livy.batches[0] == {**shown, "name": livy.batches[0]["name"]}


def test_the_run_of_a_lost_worker_is_resumed_with_its_report(
    livy: Livy, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = rewrite()
    monkeypatch.setattr(lost, "poll_until_complete", _die)
    with pytest.raises(SystemExit):
        lost.execute(context)
    assert context["task_state_store"].values[lost.external_id_key] == "0"
    facts = rewrite().execute(changed(context, ti=TaskInstance(try_number=2)))
    assert facts["shop.orders"]["outcome"] == "done"
    assert len(livy.batches) == 1


def deferred(operator: RewriteDeleteFilesOperator, context: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as raised:
        operator.execute(context)
    return raised.value


async def first_event(waiting: BaseTrigger) -> dict[str, str]:
    async for event in waiting.run():
        payload: dict[str, str] = event.payload
        return payload
    raise AssertionError("no event")


def test_a_run_is_awaited_in_the_triggerer(livy: Livy, context: Any, lake: dict[str, str]) -> None:
    FedTable(lake).ingest("2026-01-01T05:00:00+00:00")
    # the table has no delete files
    tables = ["shop.items", "shop.orders"]
    livy.state = "running"
    wait = deferred(rewrite(tables=tables, deferrable=True), context)
    started = JobRun.from_xcom(context["ti"].xcom[JOB_RUN_KEY]).started_at
    assert context["ti"].xcom[SPARK_UI_KEY] == "http://yarn:8088/proxy/application_1_1/"
    path, arguments = wait.trigger.serialize()
    trigger = resolve_name(path)(**json.loads(json.dumps(arguments)))
    livy.state = "success"
    livy.job(livy.batches[0]["args"])
    event = asyncio.run(first_event(trigger))
    # another worker goes on
    resumed = getattr(rewrite(tables=tables, deferrable=True), wait.method_name)
    facts = resumed(context, event=event, **json.loads(json.dumps(wait.kwargs)))
    assert {table: each["outcome"] for table, each in facts.items()} == {"shop.items": "done", "shop.orders": "nothing"}
    assert JobRun.from_xcom(context["ti"].xcom[JOB_RUN_KEY]).started_at == started
    assert len(livy.batches) == 1 and context["task_state_store"].values == {}


@pytest.mark.parametrize(
    ("state", "event", "message"),
    [("dead", {}, "Run 0 failed: dead"), ("running", {"state": "unknown", "reason": "denied"}, "Run 0 failed: denied")],
)
def test_a_wait_in_the_triggerer_fails_with_its_run(
    livy: Livy, context: Any, state: str, event: dict[str, str], message: str
) -> None:
    livy.state = "running"
    wait = deferred(rewrite(deferrable=True), context)
    livy.state = state
    event = event or asyncio.run(first_event(wait.trigger))
    with pytest.raises(LakecdcJobError, match=message):
        rewrite(deferrable=True).resume(context, event, **(wait.kwargs or {}))
    assert len(livy.batches) == 1


def test_a_side_table_of_the_plan_is_left_to_a_run_that_was_awaited(
    livy: Livy, context: Any, lake: dict[str, str]
) -> None:
    FedTable(lake).ingest("2026-01-01T05:00:00+00:00")
    items = FedTable(lake, "shop.items")
    items.ingest("2026-01-01T05:00:00+00:00")
    items.delete(5)
    planned = {"policy_options": {"side_tables": ["shop.items"]}, "deferrable": True}
    livy.state = "running"
    wait = deferred(rewrite(**planned), context)
    livy.state = "success"
    livy.job(livy.batches[0]["args"])
    facts = rewrite(**planned).resume(context, asyncio.run(first_event(wait.trigger)), **(wait.kwargs or {}))
    # the report of the run, which works on the side table alone
    assert {table: each["outcome"] for table, each in facts.items()} == {"shop.orders": "done"}


def test_a_run_of_an_earlier_try_fails_with_its_own_report(livy: Livy, context: Any) -> None:
    livy.state = "running"
    deferred(rewrite(deferrable=True), context)
    second = changed(context, ti=TaskInstance(try_number=2))
    wait = deferred(rewrite(deferrable=True), second)
    livy.state = "dead"
    given = livy.batches[0]["args"]
    tables = [{"table": "shop.orders", "outcome": "failed", "failure_class": "bad input", "reason": "no key"}]
    ObjectStoragePath(given[given.index("--report") + 1]).write_text(json.dumps({**REPORT, "tables": tables}))
    with pytest.raises(JobBadInputError, match="no key"):
        rewrite(deferrable=True).resume(second, asyncio.run(first_event(wait.trigger)), **(wait.kwargs or {}))
    assert len(livy.batches) == 1


def test_dag_test_resumes_with_the_event_alone(livy: Livy, context: Any) -> None:
    livy.state = "running"
    wait = deferred(rewrite(deferrable=True), context)
    livy.state = "success"
    livy.job(livy.batches[0]["args"])
    facts = rewrite(deferrable=True).resume(context, event=asyncio.run(first_event(wait.trigger)))
    assert facts["shop.orders"]["outcome"] == "done" and len(livy.batches) == 1


def test_a_run_whose_id_is_no_longer_stored_is_not_started_again(livy: Livy, context: Any) -> None:
    livy.state = "running"
    wait = deferred(rewrite(deferrable=True), context)
    context["task_state_store"].values.clear()
    with pytest.raises(LakecdcJobError, match="is no longer stored"):
        rewrite(deferrable=True).resume(context, {"state": "succeeded", "reason": ""}, **(wait.kwargs or {}))
    assert len(livy.batches) == 1


def test_a_task_killed_while_it_waits_in_the_triggerer_stops_its_run(livy: Livy, context: Any) -> None:
    livy.state = "running"
    asyncio.run(deferred(rewrite(deferrable=True), context).trigger.on_kill())
    assert livy.deleted == {0}


def test_a_failed_run_shows_the_platforms_message_and_its_last_lines(livy: Livy, context: Any) -> None:
    livy.state = "dead"
    with pytest.raises(JobClusterError, match=r"Run 0 failed: dead(.|\n)*killed by YARN(.|\n)*executor_memory"):
        rewrite().execute(context)


def test_the_try_after_a_killed_one_starts_another_run(
    livy: Livy, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = rewrite()
    monkeypatch.setattr("airflow_provider_lakecdc.submit.submitter.time.sleep", lambda _: operator.on_kill())
    livy.state = "running"
    with pytest.raises(LakecdcJobError, match="it was deleted"):
        operator.execute(context)
    livy.state = "success"
    facts = rewrite().execute(changed(context, ti=TaskInstance(try_number=2)))
    assert facts["shop.orders"]["outcome"] == "done" and len(livy.batches) == 2


def test_a_lost_answer_does_not_end_the_task(livy: Livy, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    status, lost = LivyBatches.status, iter([True, True, False])

    def unreliable(self: LivyBatches, run_id: str) -> Any:
        if next(lost):
            raise ConnectionError("reset by peer")
        return status(self, run_id)

    monkeypatch.setattr(LivyBatches, "status", unreliable)
    assert rewrite().execute(context)["shop.orders"]["outcome"] == "done"


def test_a_platform_without_page_or_logs_does_no_harm(
    livy: Livy, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise ConnectionError("denied")

    monkeypatch.setattr(LivyBatches, "link", refuse)
    monkeypatch.setattr(LivyBatches, "last_lines", refuse)
    assert rewrite().execute(context)["shop.orders"]["outcome"] == "done"
    livy.state = "dead"
    with pytest.raises(LakecdcJobError, match="Run 1 failed: dead"):
        rewrite().execute(changed(context, ti=TaskInstance(try_number=2)))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"documents_uri": "file:///tmp/documents"}, "cannot read file:///tmp/documents"),
        ({"conf": {"spark.hadoop.fs.s3a.secret.key": "k"}}, "is a secret"),
        ({"env_vars": {"PGPASSWORD": "k"}}, "is a secret"),
        ({"keytab": "/etc/keytab"}, "does not support keytab"),
        ({"deploy_mode": "client"}, "no client mode"),
    ],
)
def test_options_the_platform_does_not_support_are_refused(
    livy: Livy, context: Any, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(JobBadInputError, match=reason):
        rewrite(**arguments).execute(context)
    assert not livy.batches


def test_secrets_of_connections_are_refused(livy: Livy, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, "lake", conn_type="iceberg", extra={"uri": "http://c", "token": "s3cr3t"})
    with pytest.raises(JobBadInputError, match="secrets of Airflow connections"):
        rewrite().execute(context)
    assert not livy.batches


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"conn_type": "ssh"}, "one of the types spark, databricks"), ({"conn_type": "aws"}, "emr, emr-serverless, glue")],
)
def test_unusable_connections_are_refused(
    lake: dict[str, str], context: Any, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], reason: str
) -> None:
    connection(monkeypatch, "spark_default", **fields)
    with pytest.raises(JobBadInputError, match=reason):
        rewrite().execute(context)


def _die(*_: Any) -> None:
    raise SystemExit(137)


def test_the_deployment_check_supports_platforms(livy: Livy) -> None:
    targets: list[SparkTarget] = []
    finding = spark_connection("spark_default", None, targets)
    assert str(finding).startswith("spark_default, livy;") and targets[0].cluster_mode
    assert isinstance(documents(targets[0]), Finding), "documents in the worker's local folder"
