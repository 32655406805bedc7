"""The private parts of Airflow's Spark provider that the package uses."""

from __future__ import annotations

import ast
import inspect
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.bases.resumablejobmixin import ResumableJobMixin
from packaging.requirements import Requirement

import airflow_provider_lakecdc
from airflow_provider_lakecdc.submit import spark_submit
from tests.airflow_provider_lakecdc.conftest import connection
from tests.airflow_provider_lakecdc.home import REPOSITORY

# arguments without a public name
ARGUMENTS = {
    "_archives", "_driver_memory", "_executor_cores", "_executor_memory", "_num_executors", "_repositories",
    "_total_executor_cores", "_yarn_queue", "_openlineage_inject_parent_job_info", "_openlineage_inject_transport_info",
}  # fmt: skip
OPERATOR = {"_conn_id", "_deploy_mode", "_spark_binary", "_hook", "_get_hook", "_K8S_DRIVER_STATUS_KEY", *ARGUMENTS}
HOOK = {
    "_build_spark_submit_command", "_process_spark_submit_log", "_submit_sp", "_is_yarn_cluster_mode",
    "_should_track_driver_status", "_should_track_driver_via_k8s_api", "_track_driver_via_k8s_api",
    "_validate_track_driver_via_k8s_api_config", "_yarn_track_via_rm_api",
}  # fmt: skip
#: members of our own class in that module
OURS = {"_last_lines", "_link", "_push_link", "_binary", "_context", "_hook_for", "_operator"}
OURS |= {"_listeners", "_lines", "_all", "_notify"}


def private_members(path: Path) -> set[str]:
    names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_the_provider_has_every_private_member_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, "spark_default", conn_type="spark", host="local[2]")
    operator: Any = SparkSubmitOperator(task_id="t")
    assert {name for name in OPERATOR if not hasattr(operator, name)} == set()
    assert {name for name in HOOK if not hasattr(operator._get_hook(), name)} == set()
    assert inspect.signature(SparkSubmitOperator._get_hook).parameters.keys() == {"self"}
    assert inspect.signature(SparkSubmitHook._process_spark_submit_log).parameters.keys() == {"self", "itr"}
    assert inspect.signature(SparkSubmitHook._build_spark_submit_command).parameters.keys() == {"self", "application"}


@pytest.mark.parametrize("name", ["submit_job", "get_job_status", "is_job_active", "is_job_succeeded"])
def test_overridden_methods_are_the_public_interface_of_resumable_jobs(name: str) -> None:
    assert hasattr(ResumableJobMixin, name)


def test_private_members_are_named_here_and_used_in_one_module() -> None:
    one = Path(spark_submit.__file__)
    assert private_members(one) == OPERATOR | HOOK | OURS
    package = Path(airflow_provider_lakecdc.__file__).parent
    others = {path.name: private_members(path) & (OPERATOR | HOOK) for path in package.rglob("*.py") if path != one}
    assert {name: members for name, members in others.items() if members} == {}


@pytest.mark.parametrize("package", ["apache-airflow-providers-apache-spark", "pymysql", "pyspark", "confluent-kafka"])
def test_packages_with_used_private_members_have_an_upper_bound(package: str) -> None:
    setup = ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    lists = [setup["options"]["install_requires"], setup["options.extras_require"]["spark"]]
    pins = [Requirement(line) for text in lists for line in text.split("\n") if line and not line.startswith("#")]
    (one,) = [each for each in pins if each.name == package]
    assert {each.operator for each in one.specifier} & {"<", "=="}
