"""The inside of Airflow's Spark provider, as far as it is used."""

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
from airflow_provider_lakecdc.submit.spark_submit import CLOSE, OPEN, JobOutput
from tests.airflow_provider_lakecdc.conftest import connection
from tests.airflow_provider_lakecdc.home import REPOSITORY

OPERATOR = {"_conn_id", "_deploy_mode", "_spark_binary", "_hook", "_get_hook", "_K8S_DRIVER_STATUS_KEY"}
HOOK = {"_build_spark_submit_command", "_process_spark_submit_log", "_submit_sp"}
IVY = ":: loading settings :: url = jar:file:/x.jar!/ivysettings.xml"
INFO = "26/11/23 06:20:44 INFO SparkContext: Running Spark version 4.1.3"
WARN = "26/11/23 06:20:44 WARN TaskSetManager: Lost task 0.0"
OURS = "2026-11-23 06:20:45,123 INFO lakecdc.runtime.run: shop.orders: done"


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
def test_what_is_overridden_is_the_public_interface_of_resumable_jobs(name: str) -> None:
    assert hasattr(ResumableJobMixin, name)


def test_they_are_named_here_and_used_in_one_module_only() -> None:
    one = Path(spark_submit.__file__)
    assert private_members(one) == OPERATOR | HOOK | {"_ending", "_output"}
    package = Path(airflow_provider_lakecdc.__file__).parent
    others = {path.name: private_members(path) & (OPERATOR | HOOK) for path in package.rglob("*.py") if path != one}
    assert {name: found for name, found in others.items() if found} == {}


@pytest.mark.parametrize("package", ["apache-airflow-providers-apache-spark", "pymysql", "pyspark", "confluent-kafka"])
def test_packages_of_which_private_members_are_used_have_an_upper_bound(package: str) -> None:
    setup = ConfigParser()
    setup.read(REPOSITORY / "setup.cfg")
    lists = [setup["options"]["install_requires"], setup["options.extras_require"]["spark"]]
    found = [Requirement(line) for text in lists for line in text.split("\n") if line and not line.startswith("#")]
    (one,) = [each for each in found if each.name == package]
    assert {each.operator for each in one.specifier} & {"<", "=="}


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([OURS], [OURS]),
        ([IVY, INFO, OURS], [OPEN, IVY, INFO, CLOSE, OURS]),
        ([WARN, IVY, "\tconfs: [default]", OURS], [WARN, OPEN, IVY, "\tconfs: [default]", CLOSE, OURS]),
        (
            [INFO, "\tof the line before", OURS, "  and this"],
            [OPEN, INFO, "\tof the line before", CLOSE, OURS, "  and this"],
        ),
        (
            [WARN, "java.io.IOException: x", "\tat y", INFO],
            [WARN, "java.io.IOException: x", "\tat y", OPEN, INFO, CLOSE],
        ),
        (
            [INFO, 'Exception in thread "main" x', "\tat y"],
            [OPEN, INFO, CLOSE, 'Exception in thread "main" x', "\tat y"],
        ),
        ([INFO, "Traceback (most recent call last):"], [OPEN, INFO, CLOSE, "Traceback (most recent call last):"]),
        ([INFO, "spark-class: line 1: 7 Killed java"], [OPEN, INFO, CLOSE, "spark-class: line 1: 7 Killed java"]),
        ([], []),
    ],
)
def test_sparks_chatter_is_folded(lines: list[str], shown: list[str]) -> None:
    assert list(JobOutput().fold(lines)) == shown


def test_the_last_lines_are_no_chatter_unless_there_is_nothing_else() -> None:
    output = JobOutput()
    list(output.fold([WARN, *[INFO] * 50]))
    assert output.last_lines == [WARN]
    silent = JobOutput()
    list(silent.fold([INFO] * 50))
    assert silent.last_lines == [INFO] * 20


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("2026-11-23 06:20:45,123 INFO lakecdc.runtime.run: Spark UI at http://worker:4040\n", ["http://worker:4040"]),
        # what a row or another library says is none of the job's own words
        ("2026-11-23 06:20:45,123 WARNING lakecdc.runtime.run: shop.orders: Spark UI at http://elsewhere", []),
        ("2026-11-23 06:20:45,123 INFO py4j: Spark UI at http://elsewhere", []),
        ("Spark UI at http://elsewhere\n", []),
        (f"{INFO}: Spark UI at http://elsewhere\n", []),
    ],
)
def test_what_the_job_says_is_told_to_who_listens_for_it(line: str, found: list[str]) -> None:
    told: list[str] = []
    assert line in list(JobOutput({"Spark UI at ": told.append, "Spark keeps": lambda _: None}).fold([line]))
    assert told == found
