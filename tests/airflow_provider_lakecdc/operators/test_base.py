"""The base operator with a fake spark-submit."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_lakecdc.exceptions import (
    JobBadInputError,
    LakecdcJobError,
)
from airflow_provider_lakecdc.observe.assets import table_asset, tables_alias
from airflow_provider_lakecdc.operators.base import REPORT_URI_KEY, LakecdcJobOperator
from airflow_provider_lakecdc.operators.expire_snapshots import ExpireSnapshotsOperator
from airflow_provider_lakecdc.submit.job_run import JOB_RUN_KEY, SPARK_UI_KEY, JobRun
from tests.airflow_provider_lakecdc.conftest import CATALOG_SECRET, FakeSpark, TaskInstance, changed, connection
from tests.airflow_provider_lakecdc.operators.support import option, rewrite

Context = Any
pytestmark = pytest.mark.usefixtures("lake")


@pytest.mark.sqlite
def test_the_job_is_submitted_with_the_spec(spark_submit: FakeSpark, context: Context, lake: dict[str, str]) -> None:
    rewrite("shop.orders", "shop.items", position_deletes="keep").execute(context)
    (call,) = spark_submit.calls
    assert call["spec"]["job"] == "rewrite_delete_files"
    assert call["spec"]["tables"] == ["shop.orders", "shop.items"]
    assert call["spec"]["options"]["position_deletes"] == "keep"
    assert call["spec"]["catalog"]["name"] == "lake"
    assert call["spec"]["catalog"]["properties"]["uri"] == lake["uri"]
    arguments = call["arguments"]
    assert option(arguments, "--master") == "local[2]"
    assert option(arguments, "--name") == "lakecdc-rewrite_delete_files"
    assert arguments[-5].endswith("/rewrite_delete_files.py")
    assert "iceberg-spark-runtime-4.1" in option(arguments, "--packages")
    assert "sqlite-jdbc" in option(arguments, "--packages")


def test_the_library_is_submitted_as_a_zip(spark_submit: FakeSpark, context: Context) -> None:
    rewrite(py_files="/more.py").execute(context)
    more, library = option(spark_submit.calls[0]["arguments"], "--py-files").split(",")
    assert more == "/more.py"
    with zipfile.ZipFile(library) as archive:
        names = archive.namelist()
    assert "lakecdc/__init__.py" in names
    assert "lakecdc/contract/spec.py" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith("lakecdc/jobs")]


def test_the_return_value_has_facts_by_table(spark_submit: FakeSpark, context: Context) -> None:
    spark_submit.behave({"shop.items": {"outcome": "nothing", "reason": "no deletes", "metrics": {}}})
    returned = rewrite("shop.orders", "shop.items").execute(context)
    assert returned["shop.orders"] == {
        "outcome": "done",
        "snapshot_before": "9007199254740993",
        "snapshot_after": "9007199254740995",
        "metrics": {"rows": 3},
    }
    assert returned["shop.items"]["outcome"] == "nothing"
    assert returned["shop.items"]["reason"] == "no deletes"
    assert json.loads(json.dumps(returned)) == returned


def test_every_try_has_its_own_documents(spark_submit: FakeSpark, context: Context) -> None:
    for number in (1, 2):
        ti = TaskInstance(try_number=number, run_id="scheduled__2026-01-01T00:00:00+00:00", map_index=3)
        rewrite().execute(changed(context, ti=ti))
    uris = [option(call["arguments"], "--report") for call in spark_submit.calls]
    assert uris[0] != uris[1]
    assert "/3/try-1/" in uris[0] and "/3/try-2/" in uris[1]
    assert not set(uris[0]) & set("+?# ")


def test_a_report_of_an_earlier_run_is_not_used(spark_submit: FakeSpark, context: Context) -> None:
    rewrite().execute(context)
    spark_submit.behave(report=False, exit=1)
    with pytest.raises(LakecdcJobError, match="left no report"):
        rewrite().execute(context)


def test_report_uri_and_links_are_in_xcom_although_the_job_fails(spark_submit: FakeSpark, context: Context) -> None:
    spark_submit.behave(report=False, exit=1)
    with pytest.raises(LakecdcJobError):
        rewrite().execute(context)
    uri = option(spark_submit.calls[0]["arguments"], "--report")
    xcom = context["ti"].xcom
    assert xcom[REPORT_URI_KEY] == uri
    # relative, so that they work below any sub-path
    assert xcom["lakecdc_report_link"] == "lakehouse/report?dag_id=d&run_id=r&task_id=t"
    assert xcom["lakecdc_table_link"] == "lakehouse/table?lake=lake&name=shop.orders"


def test_links_of_a_mapped_task_cover_its_tables(spark_submit: FakeSpark, context: Context) -> None:
    ti = TaskInstance(run_id="manual__2026-01-01T00:00:00+00:00", map_index=0)
    rewrite("shop.orders", "shop.items").execute(changed(context, ti=ti))
    query = parse_qs(urlsplit(ti.xcom["lakecdc_report_link"]).query)
    assert query == {"dag_id": ["d"], "run_id": [ti.run_id], "task_id": ["t"], "map_index": ["0"]}
    assert ti.xcom["lakecdc_table_link"] == "lakehouse/tables?lake=lake"


def test_job_state_is_reported_at_its_start_and_end(spark_submit: FakeSpark, context: Context) -> None:
    pushed: list[Any] = []

    class Noting(TaskInstance):
        def xcom_push(self, key: str, value: Any) -> None:
            super().xcom_push(key, value)
            pushed.extend([JobRun.from_xcom(self.xcom[key])] if key == JOB_RUN_KEY else [])

    spark_submit.behave({"shop.orders": {"outcome": "failed", "reason": "it broke", "failure_class": "bad input"}})
    with pytest.raises(JobBadInputError) as failed:
        rewrite("shop.orders", "shop.items").execute(changed(context, ti=Noting()))
    begun, ended = pushed
    assert begun.tables == ("shop.orders", "shop.items") and begun.finished_at is None and begun.took is None
    assert ended.error == str(failed.value)
    assert "it broke" in ended.error and "Fix the problem above" in ended.error
    assert ended.took >= 0 and ended.spark_application_id


def test_the_address_of_sparks_page_is_in_xcom_while_the_job_runs(spark_submit: FakeSpark, context: Context) -> None:
    pushed: list[Any] = []

    class Noting(TaskInstance):
        def xcom_push(self, key: str, value: Any) -> None:
            super().xcom_push(key, value)
            pushed.extend([value] if key == SPARK_UI_KEY else [])

    line = "2026-11-23 06:20:45,123 INFO lakecdc.runtime.run: Spark UI at http://worker:4040"
    spark_submit.behave(report=False, exit=1, output=(line,))
    with pytest.raises(LakecdcJobError):
        rewrite().execute(changed(context, ti=Noting()))
    assert pushed == ["http://worker:4040", ""]


@pytest.mark.parametrize(
    ("server", "has_events", "link"),
    [
        ("https://history/", True, "https://history/history/local-7/jobs/"),
        ("https://history/", False, ""),
        ("", True, ""),
    ],
)
def test_sparks_page_is_on_the_history_server_or_nowhere_after_the_job(
    spark_submit: FakeSpark, context: Context, monkeypatch: pytest.MonkeyPatch, server: str, has_events: bool, link: str
) -> None:
    monkeypatch.setenv("AIRFLOW__LAKECDC__HISTORY_SERVER", server)
    said = ["Spark UI at http://worker:4040", *(["Spark keeps the events of local-7"] if has_events else [])]
    output = tuple(f"2026-11-23 06:20:45,123 INFO lakecdc.runtime.run: {each}" for each in said)
    # the events are those of a job without a report
    spark_submit.behave(report=False, exit=1, output=output)
    with pytest.raises(LakecdcJobError):
        rewrite().execute(context)
    assert context["ti"].xcom["spark_ui"] == link


class TestSecrets:
    """No secret of a connection is written anywhere."""

    def test_the_value_is_in_the_environment_only(self, spark_submit: FakeSpark, context: Context) -> None:
        rewrite().execute(context)
        (call,) = spark_submit.calls
        reference = call["spec"]["catalog"]["properties"]["s3.secret-access-key"]
        assert call["environment"][reference["env"]] == CATALOG_SECRET
        assert reference["env"].startswith("LAKECDC_SECRET_")
        assert CATALOG_SECRET not in json.dumps([call["arguments"], call["spec"], context["ti"].xcom])

    def test_it_is_in_no_field_stored_by_airflow(self, spark_submit: FakeSpark, context: Context) -> None:
        operator = rewrite()
        operator.execute(context)
        stored = {name: getattr(operator, name) for name in operator.template_fields}
        assert CATALOG_SECRET not in json.dumps(stored, default=str)

    def test_it_is_removed_from_the_process_afterwards(self, spark_submit: FakeSpark, context: Context) -> None:
        rewrite().execute(context)
        assert not [name for name in os.environ if name.startswith("LAKECDC_SECRET_")]

    def test_it_is_masked_in_airflows_log(self, spark_submit: FakeSpark, context: Context) -> None:
        from airflow.sdk._shared.secrets_masker import redact

        rewrite().execute(context)
        assert CATALOG_SECRET not in str(redact(f"the job printed {CATALOG_SECRET}"))

    def test_cluster_mode_refuses_secrets(self, spark_submit: FakeSpark, context: Context) -> None:
        with pytest.raises(JobBadInputError, match="client mode"):
            rewrite(deploy_mode="cluster").execute(context)
        assert spark_submit.calls == []

    def test_a_reference_in_the_connection_is_passed_on_unchanged(
        self, spark_submit: FakeSpark, context: Context, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str]
    ) -> None:
        reference = {"file": "/run/secrets/key"}
        connection(monkeypatch, "lake", conn_type="iceberg", extra={**lake, "s3.secret-access-key": reference})
        rewrite().execute(context)
        assert spark_submit.calls[0]["spec"]["catalog"]["properties"]["s3.secret-access-key"] == reference


def test_without_a_path_the_submit_command_beside_python_is_used(
    context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import sys

    connection(monkeypatch, "spark_default", conn_type="spark", host="local[2]")
    monkeypatch.setenv("PATH", str(tmp_path))
    command = rewrite().render()["command"]
    assert command[0] == str(Path(sys.executable).parent / "spark-submit")


class TestAssetEvents:
    """Events for consumers of the tables."""

    def test_a_plain_outlet_gets_the_facts_of_its_table(self, spark_submit: FakeSpark, context: Context) -> None:
        outlet = table_asset("lake", "shop.orders")
        events = _Events()
        rewrite(outlets=[outlet, Asset("other")]).execute(changed(context, outlet_events=events))
        assert events[outlet].extra["snapshot_after"] == "9007199254740995"
        assert events[outlet].extra["job"] == "rewrite_delete_files"
        assert list(events.by_uri) == [outlet.uri]

    def test_through_the_alias_only_changed_tables_raise_events(
        self, spark_submit: FakeSpark, context: Context
    ) -> None:
        spark_submit.behave({"shop.items": {"outcome": "nothing"}})
        alias, events = tables_alias("lake"), _Events()
        rewrite("shop.orders", "shop.items", outlets=[alias]).execute(changed(context, outlet_events=events))
        ((asset, extra),) = events[alias].added
        assert asset == table_asset("lake", "shop.orders")
        assert extra["table"] == "shop.orders" and extra["metrics"] == {"rows": 3}

    def test_a_dry_run_raises_no_event(self, spark_submit: FakeSpark, context: Context) -> None:
        alias, events = tables_alias("lake"), _Events()
        rewrite(outlets=[alias], dry_run=True).execute(changed(context, outlet_events=events))
        assert events.by_uri == {}


class TestRender:
    """The submission can be rendered without running it."""

    def test_it_shows_the_command_and_hides_secrets(self, spark_submit: FakeSpark) -> None:
        shown = rewrite(conf={"spark.executor.memory": "1g"}).render()
        assert "spark.executor.memory=1g" in shown["command"]
        assert shown["command"][-4:-2] == ["--spec", shown["spec_uri"]]
        assert shown["spec"]["tables"] == ["shop.orders"]
        variable = shown["spec"]["catalog"]["properties"]["s3.secret-access-key"]["env"]
        assert variable.startswith("LAKECDC_SECRET_LAKE_S3_SECRET_ACCESS_KEY")
        assert shown["environment"][variable] == "***"
        assert CATALOG_SECRET not in json.dumps(shown)

    def test_it_equals_the_submission(self, spark_submit: FakeSpark, context: Context) -> None:
        shown = rewrite().render(context)
        rewrite().execute(context)
        assert spark_submit.calls[0]["arguments"] == shown["command"][1:]
        assert spark_submit.calls[0]["spec"] == shown["spec"]

    def test_it_writes_and_starts_nothing(self, spark_submit: FakeSpark) -> None:
        shown = rewrite().render()
        assert spark_submit.calls == []
        assert not Path(urlsplit(shown["spec_uri"]).path).exists()


def test_a_second_execution_of_the_same_object_adds_nothing_twice(spark_submit: FakeSpark, context: Context) -> None:
    operator = rewrite(packages="a:b:1")
    operator.execute(context)
    operator.execute(context)
    first, second = spark_submit.calls
    assert first["arguments"] == second["arguments"]
    assert option(first["arguments"], "--packages").startswith("a:b:1,")


def test_tables_of_a_run_can_be_selected(spark_submit: FakeSpark, context: Context) -> None:
    beside = ["a.b_lakecdc_files", "a.lakecdc_parked", "c.d_lakecdc_files"]
    expire("a.b", "c.d", only="a.b,x.y", side_tables=beside).execute(context)
    spec = spark_submit.calls[0]["spec"]
    assert (spec["tables"], spec["options"]["side_tables"]) == (["a.b"], ["a.b_lakecdc_files", "a.lakecdc_parked"])
    with pytest.raises(AirflowSkipException):
        expire("c.d", only="a.b").execute(context)
    expire("c.d", only="").execute(context)
    assert spark_submit.calls[1]["spec"]["tables"] == ["c.d"]


def expire(*tables: str, **arguments: Any) -> ExpireSnapshotsOperator:
    return ExpireSnapshotsOperator(task_id="t", catalog_conn_id="lake", tables=list(tables), **arguments)


def test_rendered_text_becomes_typed_options(spark_submit: FakeSpark, context: Context) -> None:
    operator = ExpireSnapshotsOperator(
        task_id="t", catalog_conn_id="lake", tables="['shop.orders', 'shop.items']", retain_last="7", dry_run="True"
    )
    operator.execute(context)
    spec = spark_submit.calls[0]["spec"]
    assert spec["tables"] == ["shop.orders", "shop.items"]
    assert spec["options"]["retain_last"] == 7
    assert spec["options"]["dry_run"] is True
    assert "older_than" in spec["options"]


def test_the_base_runs_any_job(spark_submit: FakeSpark, context: Context) -> None:
    operator = LakecdcJobOperator(
        task_id="t", job="rewrite_manifests", options={"min_manifests": 2}, tables="shop.orders", catalog_conn_id="lake"
    )
    assert operator.execute(context)
    assert spark_submit.calls[0]["spec"]["options"] == {"min_manifests": 2}


class _Event:
    def __init__(self) -> None:
        self.extra: dict[str, Any] = {}
        self.added: list[tuple[Any, dict[str, Any]]] = []

    def add(self, asset: Any, extra: dict[str, Any]) -> None:
        self.added.append((asset, extra))


class _Events:
    def __init__(self) -> None:
        self.by_uri: dict[str, _Event] = {}

    def __getitem__(self, outlet: Any) -> _Event:
        return self.by_uri.setdefault(getattr(outlet, "uri", outlet.name), _Event())
