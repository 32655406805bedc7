"""Requests to each platform and the reading of its answers; requests to AWS are checked with botocore's models."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from airflow.sdk import BaseHook

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.submit.platforms import PLATFORMS, open_platform, platform_of
from airflow_provider_lakecdc.submit.submitter import Application, RunStatus, Submitter
from tests.airflow_provider_lakecdc.conftest import connection
from tests.airflow_provider_lakecdc.home import REPOSITORY
from tests.airflow_provider_lakecdc.submit.platforms import fakes

SCRIPT, LIBRARY = "s3://lake/packages/1/ingest.py", "s3://lake/packages/2/lakecdc-0.1-py3-none-any.zip"
ARN = "arn:aws:emr-serverless:eu-west-1:123456789012:/applications/00f/jobruns/job-1"
ROLE = "arn:aws:iam::123456789012:role/jobs"


def application(**parts: Any) -> Application:
    whole: dict[str, Any] = {
        "name": "lakecdc-ingest",
        "script": SCRIPT,
        "args": ("--spec", "s3://lake/spec.json", "--report", "s3://lake/report.json"),
        "py_files": (LIBRARY,),
        "archives": (),
        "packages": ("org.apache.iceberg:iceberg:1",),
        "conf": {"spark.executor.memory": "4g", "spark.app.note": "two words"},
        "env": {},
    }
    return Application(**{**whole, **parts})


def opened(monkeypatch: pytest.MonkeyPatch, name: str, **settings: Any) -> Submitter:
    kind = PLATFORMS[name].conn_type
    connection(monkeypatch, "platform", conn_type=kind, extra={"spark": {**settings, "service": name}})
    return open_platform("platform")


def test_emr_serverless_runs_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = fakes.stub_aws(monkeypatch, "emr", "EmrServerlessHook", "emr-serverless")
    platform = opened(monkeypatch, "emr-serverless", application_id="00f", role=ROLE, log_uri="s3://lake/logs/")
    environment = {
        "archives": ("s3://lake/env.tar.gz#environment",),
        "env": {"PYSPARK_PYTHON": "./environment/bin/python"},
    }
    sent = platform.preview(application(**environment))
    submit = sent["jobDriver"]["sparkSubmit"]
    assert submit["entryPointArguments"][::2] == ["--spec", "--report"]
    parameters = submit["sparkSubmitParameters"]
    assert f"--conf spark.submit.pyFiles={LIBRARY} " in parameters
    assert "--conf 'spark.app.note=two words' " in parameters
    assert "--conf spark.archives=s3://lake/env.tar.gz#environment " in parameters
    assert "spark.emr-serverless.driverEnv.PYSPARK_PYTHON=" in parameters
    assert "spark.executorEnv.PYSPARK_PYTHON=" in parameters

    run = {"applicationId": "00f", "jobRunId": "job-1"}
    answer = {"applicationId": "00f", "jobRunId": "job-1", "arn": ARN}
    stub.add_response("start_job_run", answer, sent)
    assert platform.start(application(**environment)) == "job-1"
    for state, status in (
        ("QUEUED", RunStatus("running")),
        ("SUCCESS", RunStatus("succeeded")),
        ("FAILED", RunStatus("failed", "FAILED: out of memory")),
        ("CANCELLED", RunStatus("failed", "CANCELLED: out of memory")),
    ):
        facts = {
            **answer, "createdBy": ROLE, "createdAt": 0, "updatedAt": 0, "executionRole": ROLE, "state": state,
            "stateDetails": "out of memory", "releaseLabel": "emr-8.0.0", "jobDriver": sent["jobDriver"],
        }  # fmt: skip
        stub.add_response("get_job_run", {"jobRun": facts}, run)
        assert platform.status("job-1") == status
    stub.add_response("get_dashboard_for_job_run", {"url": "https://p-1.emrappui/shs"}, run)
    assert platform.link("job-1") == "https://p-1.emrappui/shs"
    stub.add_response("cancel_job_run", {"applicationId": "00f", "jobRunId": "job-1"}, run)
    platform.stop("job-1")
    stub.assert_no_pending_responses()


def test_emr_runs_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = fakes.stub_aws(monkeypatch, "emr", "EmrHook", "emr")
    platform = opened(monkeypatch, "emr", cluster_id="j-1", role=ROLE)
    step = platform.preview(application(env={"A": "b"}))
    arguments = step["HadoopJarStep"]["Args"]
    assert arguments[:3] == ["spark-submit", "--deploy-mode", "cluster"]
    assert arguments[-5:] == [SCRIPT, "--spec", "s3://lake/spec.json", "--report", "s3://lake/report.json"]
    assert {f"spark.submit.pyFiles={LIBRARY}", "spark.yarn.appMasterEnv.A=b", "spark.executorEnv.A=b"} < {*arguments}
    expected_request = {"JobFlowId": "j-1", "Steps": [step], "ExecutionRoleArn": ROLE}
    stub.add_response("add_job_flow_steps", {"StepIds": ["s-1"]}, expected_request)
    assert platform.start(application(env={"A": "b"})) == "s-1"
    named = {"ClusterId": "j-1", "StepId": "s-1"}
    details = {"Reason": "Unknown Error.", "LogFile": "s3://logs/stderr.gz"}
    for status, expected in (
        ({"State": "PENDING"}, RunStatus("running")),
        ({"State": "COMPLETED"}, RunStatus("succeeded")),
        (
            {"State": "FAILED", "FailureDetails": details},
            RunStatus("failed", "FAILED: Unknown Error.: s3://logs/stderr.gz"),
        ),
        (
            {"State": "CANCELLED", "StateChangeReason": {"Message": "by hand"}},
            RunStatus("failed", "CANCELLED: by hand"),
        ),
    ):
        stub.add_response("describe_step", {"Step": {"Id": "s-1", "Status": status}}, named)
        assert platform.status("s-1") == expected
    cancelled = {"ClusterId": "j-1", "StepIds": ["s-1"], "StepCancellationOption": "TERMINATE_PROCESS"}
    stub.add_response("cancel_steps", {"CancelStepsInfoList": []}, cancelled)
    platform.stop("s-1")
    stub.assert_no_pending_responses()


def test_glue_runs_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = fakes.stub_aws(monkeypatch, "glue", "GlueJobHook", "glue")
    platform = opened(monkeypatch, "glue", job="lakecdc")
    given = application(conf={"spark.executor.memory": "4g", "spark.a": "b", "spark.jars": "s3://lake/iceberg.jar"})
    sent = platform.preview(given)
    assert sent["Arguments"] == {
        "--scriptLocation": SCRIPT,
        "--extra-py-files": LIBRARY,
        "--conf": "spark.executor.memory=4g --conf spark.a=b",
        "--extra-jars": "s3://lake/iceberg.jar",
        "--spec": "s3://lake/spec.json",
        "--report": "s3://lake/report.json",
    }
    stub.add_response("start_job_run", {"JobRunId": "jr_1"}, sent)
    assert platform.start(given) == "jr_1"
    for state, status in (
        ("STOPPING", RunStatus("failed", "STOPPING: too long")),
        ("SUCCEEDED", RunStatus("succeeded")),
        ("TIMEOUT", RunStatus("failed", "TIMEOUT: too long")),
    ):
        answer = {"JobRun": {"JobRunState": state, "ErrorMessage": "too long"}}
        stub.add_response("get_job_run", answer, {"JobName": "lakecdc", "RunId": "jr_1"})
        assert platform.status("jr_1") == status
    stub.add_response("batch_stop_job_run", {}, {"JobName": "lakecdc", "JobRunIds": ["jr_1"]})
    platform.stop("jr_1")
    stub.assert_no_pending_responses()
    with pytest.raises(JobBadInputError, match="neither archives nor env_vars"):
        platform.preview(application(env={"A": "b"}))


def test_livy_runs_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    server = fakes.Livy(monkeypatch)
    platform = opened(monkeypatch, "livy")
    assert platform.start(application(env={"A": "b"})) == "0"
    sent = server.batches[0]
    assert sent["file"] == SCRIPT and sent["name"].startswith("lakecdc-ingest-")
    assert sent["conf"]["spark.submit.pyFiles"] == LIBRARY
    assert sent["conf"]["spark.jars.packages"] == "org.apache.iceberg:iceberg:1"
    assert sent["conf"]["spark.yarn.appMasterEnv.A"] == sent["conf"]["spark.executorEnv.A"] == "b"
    for state, expected in (
        ("starting", "running"),
        ("busy", "running"),
        ("success", "succeeded"),
        ("dead", "failed"),
    ):
        server.state = state
        assert platform.status("0").state == expected
    assert platform.link("0") == "http://yarn:8088/proxy/application_1_1/"
    assert platform.last_lines("0")[-1] == server.log[-1]
    platform.stop("0")
    assert platform.status("0").state == "failed"


def test_databricks_submits_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = fakes.Databricks(monkeypatch)
    cluster = {"spark_version": "18.0.x-scala2.13", "num_workers": 2, "spark_conf": {"spark.a": "b"}}
    libraries = [{"pypi": {"package": "duckdb"}}]
    platform = opened(monkeypatch, "databricks", new_cluster=cluster, libraries=libraries)
    wheel = LIBRARY.replace(".zip", ".whl")
    run_id = platform.start(application(py_files=(wheel,), env={"A": "b"}))
    ((task,),) = (each["tasks"] for each in workspace.submitted)
    assert task["spark_python_task"]["python_file"] == SCRIPT
    jar = {"maven": {"coordinates": "org.apache.iceberg:iceberg:1"}}
    assert task["libraries"] == [{"whl": wheel}, jar, *libraries]
    conf = task["new_cluster"]["spark_conf"]
    assert (conf["spark.a"], conf["spark.executor.memory"]) == ("b", "4g") and "spark.sql.extensions" in conf
    assert task["new_cluster"]["spark_env_vars"] == {"A": "b"}
    assert run_id is not None and platform.status(run_id) == RunStatus("running")
    workspace.state = {"life_cycle_state": "TERMINATED", "result_state": "FAILED", "state_message": "exit 1"}
    assert platform.status(run_id) == RunStatus("failed", "FAILED: exit 1")
    workspace.state = {"life_cycle_state": "TERMINATED", "result_state": "SUCCESS"}
    assert platform.status(run_id) == RunStatus("succeeded")
    assert str(platform.link(run_id)).endswith(f"/run/{run_id}")
    assert platform.last_lines(run_id)[0] == "SystemExit: 1"
    platform.stop(run_id)
    assert workspace.cancelled == [int(run_id)]


def test_a_running_cluster_of_databricks_accepts_no_spark_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = fakes.Databricks(monkeypatch)
    platform = opened(monkeypatch, "databricks", existing_cluster_id="0601")
    with pytest.raises(JobBadInputError, match="no effect on a running cluster"):
        platform.start(application())
    platform.start(application(conf={}))
    assert workspace.submitted[0]["tasks"][0]["existing_cluster_id"] == "0601"
    with pytest.raises(JobBadInputError, match="needs new_cluster or existing_cluster_id"):
        opened(monkeypatch, "databricks")


def test_dataproc_runs_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    project = fakes.Dataproc(monkeypatch)
    platform = opened(monkeypatch, "dataproc", project="p", region="europe-west1", version="3.0")
    run_id = platform.start(application(name="lakecdc-Compact_Data", env={"A": "b"}))
    ((name, batch),) = project.batches.items()
    assert name == run_id and name.startswith("lakecdc-compact-data-")
    assert batch["runtime_config"]["version"] == "3.0"
    properties = batch["runtime_config"]["properties"]
    assert properties["spark.submit.pyFiles"] == LIBRARY and properties["spark.dataproc.driverEnv.A"] == "b"
    assert platform.status(name) == RunStatus("running")
    project.state = "FAILED"
    assert platform.status(name) == RunStatus("failed", "FAILED: out of quota")
    project.state = "SUCCEEDED"
    assert platform.status(name) == RunStatus("succeeded")
    assert f"/europe-west1/{name}?project=p" in str(platform.link(name))
    platform.stop(name)
    assert project.cancelled == [f"operations/{name}"]


def test_kubernetes_runs_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = fakes.Kubernetes(monkeypatch)
    secret = [{"secretRef": {"name": "lake"}}]
    platform = opened(
        monkeypatch,
        "kubernetes",
        image="r/lakecdc:1",
        namespace="etl",
        driver={"envFrom": secret},
        executor={"cores": 2},
    )
    name = platform.start(application(env={"A": "b"}))
    assert name is not None
    spec = cluster.objects[name]["spec"]
    assert (spec["mainApplicationFile"], spec["deps"]["pyFiles"]) == (SCRIPT, [LIBRARY])
    assert spec["driver"]["envFrom"] == secret and spec["executor"]["cores"] == 2
    assert spec["driver"]["env"] == spec["executor"]["env"] == [{"name": "A", "value": "b"}]
    assert platform.status(name) == RunStatus("running")
    cluster.status = {"applicationState": {"state": "FAILED", "errorMessage": "driver container failed"}}
    assert platform.status(name) == RunStatus("failed", "FAILED: driver container failed")
    cluster.status = {"applicationState": {"state": "COMPLETED"}, "driverInfo": {"podName": "driver-1"}}
    assert platform.status(name) == RunStatus("succeeded")
    assert platform.last_lines(name) == ["first", "driver-1 is out of memory"]
    platform.stop(name)
    assert cluster.objects == {} and platform.status(name).state == "failed"


def test_each_platform_has_one_documented_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    for make in (fakes.Livy, fakes.Databricks, fakes.Dataproc, fakes.Kubernetes):
        make(monkeypatch)
    fakes.stub_aws(monkeypatch, "glue", "GlueJobHook", "glue")
    page = (REPOSITORY / "docs" / "operations" / "managed-spark.md").read_text()
    names = []
    for document in re.findall(r"^```json platform\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        connection(monkeypatch, "documented", **json.loads(document))
        names.append(platform_of(BaseHook.get_connection("documented")))
        if names[-1] in ("emr", "emr-serverless"):
            hook = {"emr": "EmrHook", "emr-serverless": "EmrServerlessHook"}[names[-1]]
            fakes.stub_aws(monkeypatch, "emr", hook, names[-1])
        assert open_platform("documented").preview(application(env={}, conf={}))
    assert sorted(names) == sorted(PLATFORMS)


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_missing_provider_is_reported_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    least = {
        "databricks": {"existing_cluster_id": "1"}, "dataproc": {"project": "p", "region": "r"},
        "emr": {"cluster_id": "j"}, "emr-serverless": {"application_id": "a", "role": ROLE}, "glue": {"job": "j"},
        "kubernetes": {"image": "i"},
    }  # fmt: skip
    with pytest.raises(JobBadInputError, match=rf"airflow-provider-lakecdc\[{PLATFORMS[name].extra}\]"):
        opened(monkeypatch, name, **least.get(name, {}))


def test_a_misspelt_setting_is_refused_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobBadInputError, match="application_id"):
        opened(monkeypatch, "emr-serverless", aplication_id="a", role=ROLE)
