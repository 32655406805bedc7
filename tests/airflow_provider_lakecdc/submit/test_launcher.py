"""The environment of spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.submit import launcher
from airflow_provider_lakecdc.submit.launcher import SparkTarget
from tests.airflow_provider_lakecdc.conftest import connection


@pytest.mark.parametrize(
    ("fields", "master", "cluster"),
    [
        ({"host": "local[2]"}, "local[2]", False),
        ({"host": "spark://h:7077"}, "spark://h:7077", False),
        ({"host": "yarn", "extra": {"deploy-mode": "client"}}, "yarn", False),
        ({"host": "yarn", "extra": {"deploy-mode": "cluster"}}, "yarn", True),
    ],
)
def test_the_spark_provider_agrees_on_the_documented_connections(
    fields: dict[str, Any], master: str, cluster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection(monkeypatch, "spark_default", conn_type="spark", **fields)
    assert launcher.spark_target("spark_default", None) == SparkTarget(master, cluster)
    assert SparkSubmitHook(conn_id="spark_default")._connection["master"] == master


@pytest.mark.parametrize(
    "fields", [{"conn_type": "spark", "host": "sc://h:15002"}, {"conn_type": "spark_connect", "host": "h"}]
)
def test_spark_connect_is_refused_with_the_reason(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, "spark_default", **fields)
    with pytest.raises(JobBadInputError, match="client has no JVM"):
        launcher.spark_target("spark_default", None)


def test_kubernetes_without_its_provider_is_refused_with_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, "spark_default", conn_type="spark", host="k8s://https://h:6443")
    with pytest.raises(JobBadInputError, match="apache-airflow-providers-cncf-kubernetes"):
        launcher.spark_target("spark_default", None)


def test_the_operators_deploy_mode_overrides_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, "spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    assert launcher.spark_target("spark_default", "client").cluster_mode is False


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (SparkTarget("local[2]", False), {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JDK_JAVA_OPTIONS"}),
        (SparkTarget("spark://h:7077", False), {"PYSPARK_DRIVER_PYTHON", "JDK_JAVA_OPTIONS"}),
        (SparkTarget("yarn", True), set()),
    ],
)
def test_local_processes_use_this_python(target: SparkTarget, names: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JDK_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    environment = launcher.worker_environment(target)
    assert environment.keys() == names
    assert {value for name, value in environment.items() if name.startswith("PYSPARK")} <= {sys.executable}
    if java := environment.get("JDK_JAVA_OPTIONS"):
        subprocess.run(["java", *java.split(), "-version"], check=True, capture_output=True)


def test_settings_of_the_deployment_take_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Xss2m")
    environment = launcher.worker_environment(SparkTarget("local[2]", False))
    assert not environment.keys() & {"PYSPARK_PYTHON", "JDK_JAVA_OPTIONS"}


def test_the_environment_is_restored_even_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERE", "before")
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(RuntimeError), launcher.environment({"THERE": "within", "NOT_THERE": "within"}):
        assert (os.environ["THERE"], os.environ["NOT_THERE"]) == ("within", "within")
        raise RuntimeError
    assert os.environ["THERE"] == "before"
    assert "NOT_THERE" not in os.environ
