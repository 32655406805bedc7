"""The DAG files as parsed by Airflow's DAG processor."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.airflow_provider_lakecdc.home import REPOSITORY

FOLDER = REPOSITORY / "dags"
INSTALLED = REPOSITORY / "airflow_provider_lakecdc" / "example_dags"
FILES = sorted(FOLDER.glob("*.py"))
# like Airflow's DAG processor: each parse in a separate process, forked from one that has imported Airflow; with
# deprecations as errors
PARSE = """
import json, os, sys, warnings
from airflow.exceptions import RemovedInAirflow4Warning
from airflow.utils.deprecation_tools import DeprecatedImportWarning
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit
warnings.simplefilter("error", DeprecationWarning)
warnings.simplefilter("error", RemovedInAirflow4Warning)
# Airflow's own of a path that has moved, which is no DeprecationWarning
warnings.simplefilter("error", DeprecatedImportWarning)
from airflow.dag_processing.dagbag import DagBag
for line in sys.stdin:
    if os.fork():
        os.wait()
        print("END", flush=True)
        continue
    folder, environment = json.loads(line)
    os.environ.update(environment)
    bag = DagBag(folder)
    print("RESULT" + json.dumps({"errors": bag.import_errors,
        "warnings": [str(w) for w in bag.captured_warnings.items()],
        "heavy": [m for m in ("pyspark", "pyiceberg", "pyarrow", "duckdb", "pandas", "boto3") if m in sys.modules],
        "dags": {k: sorted(d.task_dict) for k, d in bag.dags.items()}}), flush=True)
    os._exit(0)
"""
Parse = Callable[..., dict[str, object]]


@pytest.fixture(scope="module")
def parse() -> Iterator[Parse]:
    """Yield a function that parses a folder of DAG files, by default the checkout's, with additional variables."""
    command = [sys.executable, "-c", PARSE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
        assert process.stdin and process.stdout
        requests, answers = process.stdin, process.stdout

        def parsed(folder: Path = FOLDER, **environment: str) -> dict[str, object]:
            print(json.dumps([str(folder), environment]), file=requests, flush=True)
            lines = list(iter(answers.readline, "END\n"))
            result: dict[str, object] = json.loads(lines[-1].removeprefix("RESULT"))
            return result

        yield parsed
        requests.close()


AROUND = ["assess", "finished", "plan", "report"]
STEPS = {
    "ingest": ["announce", "finished", "ingest"],
    "hourly_governance": sorted([*AROUND, "compact_data_files", "rewrite_delete_files"]),
    "nightly_governance": [
        "assess",
        "clean_side_tables",
        "compact_data_files",
        "expire_snapshots",
        "finished",
        "plan",
        "remove_documents",
        "report",
        "rewrite_delete_files",
        "rewrite_manifests",
        "sort_data_files",
        "tag_snapshots",
    ],
    "replay_quarantine": ["finished", "replay_quarantine"],
    "weekly_governance": sorted([*AROUND, "compute_statistics", "expire_partitions", "remove_orphan_files"]),
}


@pytest.mark.parametrize(
    ("folder", "steps"),
    [(FOLDER, STEPS), (INSTALLED, STEPS), (REPOSITORY / "demo" / "dag_files", {"reconcile": ["reconcile"]})],
    ids=["checkout", "wheel", "demo"],
)
def test_they_match_the_configuration_without_deprecations_or_heavy_libraries(
    parse: Parse, tmp_path: Path, folder: Path, steps: dict[str, list[str]]
) -> None:
    config = {
        "catalog_conn_id": "lake",
        "dag_id_prefix": "shop",
        "source": {"type": "postgres", "slot": "s"},
        "source_conn_id": "db",
        "targets": [{"table": "shop.orders"}],
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    parsed_dags = parse(folder, LAKECDC_CONFIG=str(path))
    assert parsed_dags["errors"] == {}
    assert parsed_dags["warnings"] == []
    assert parsed_dags["heavy"] == []
    assert parsed_dags["dags"] == {f"shop_{kind}": tasks for kind, tasks in steps.items()}


def test_getting_started_lists_their_tasks() -> None:
    page = (REPOSITORY / "docs" / "start" / "getting-started.md").read_text()
    shown = {
        dag: re.findall(r"`(\w+)`", tasks) for dag, tasks in re.findall(r"^\| `lakecdc_(\w+)` \| (.*) \|$", page, re.M)
    }
    assert {dag: sorted([*tasks, "finished"]) for dag, tasks in shown.items()} == STEPS


def test_without_a_configuration_errors_name_the_setting(parse: Parse) -> None:
    parsed_dags = parse()
    assert parsed_dags["dags"] == {}
    assert isinstance(parsed_dags["errors"], dict) and len(parsed_dags["errors"]) == len(FILES)
    assert all("Set the environment variable LAKECDC_CONFIG" in text for text in parsed_dags["errors"].values())


def test_a_broken_configuration_is_an_import_error(parse: Parse, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"catalog_con_id": "lake"}')
    errors = parse(LAKECDC_CONFIG=str(path))["errors"]
    assert isinstance(errors, dict) and len(errors) == len(FILES)
    assert all("Did you mean 'catalog_conn_id'" in text for text in errors.values())


def test_the_wheel_contains_the_same_files() -> None:
    assert {path.name for path in INSTALLED.glob("*.py")} - {"__init__.py"} == {path.name for path in FILES}


@pytest.mark.parametrize("path", [*FILES, *INSTALLED.glob("lakecdc_*.py")], ids=lambda path: path.parent.name)
def test_they_are_short(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert [type(node).__name__ for node in tree.body] == ["Expr", "ImportFrom", "Assign"]
    # a bare cron string has no data interval in Airflow 3
    assert "schedule" not in path.read_text()


def test_a_deprecated_import_is_an_error(parse: Parse, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("from airflow.models.baseoperator import BaseOperator  # a DAG by airflow\n")
    errors = parse(tmp_path)["errors"]
    assert isinstance(errors, dict) and "DeprecatedImportWarning" in "".join(errors.values())
