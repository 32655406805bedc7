"""Fixtures of the provider's tests: a separate Airflow home, connections, and a fake spark-submit."""

from __future__ import annotations

# first of all: it points Airflow at an empty home before anything imports Airflow
import tests.airflow_provider_lakecdc.home as home  # isort: skip

import configparser
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.lakes import catalog_properties

if TYPE_CHECKING:
    from airflow.sdk import DAG

Install = Callable[[str, str], "DAG"]
CATALOG_SECRET = "s3cr3t-of-the-catalog"
DATABASE_SECRET = "s3cr3t-of-the-database"


@pytest.fixture(scope="session", autouse=True)
def airflow_home() -> Path:
    """Return a migrated Airflow in an empty folder."""
    home.migrate()
    return home.HOME


@dataclass
class FakeSpark:
    """The fake spark-submit and its recorded calls."""

    folder: Path

    def behave(
        self,
        tables: dict[str, dict[str, Any]] | None = None,
        *,
        exit: int = 0,
        output: tuple[str, ...] = (),
        report: bool = True,
        **facts: Any,
    ) -> None:
        """Set the behaviour of the next calls.

        :param tables: reported facts by table, replacing or extending ``done``.
        :param report: whether to leave a report at all.
        :param facts: additional entries of the report.
        """
        content = {"tables": tables or {}, **facts} if report else None
        behaviour = {"exit": exit, "output": output, "report": content}
        (self.folder / "behaviour.json").write_text(json.dumps(behaviour))

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls, each with ``arguments``, ``spec`` and ``environment``."""
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """Put a fake spark-submit on the path and create its connection."""
    folder = tmp_path / "spark"
    folder.mkdir()
    script = folder / "spark-submit"
    code = Path(__file__).with_name("fake_spark_submit.py")
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{code}" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SPARK", str(folder))
    connection(monkeypatch, "spark_default", conn_type="spark", host="local[2]")
    fake = FakeSpark(folder)
    fake.behave()
    return fake


@pytest.fixture
def separate_probes() -> None:
    """Run probes of sources in separate processes, as outside of tests."""


@pytest.fixture(autouse=True)
def _probes_in_process(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Run probes of sources in this process unless a test says otherwise; importing their libraries takes longer."""
    if "separate_probes" in request.fixturenames:
        return
    from airflow_provider_lakecdc.submit import launcher

    def run_probe(module: str, question: str, environment: Mapping[str, str]) -> CompletedProcess[str]:
        output, errors = StringIO(), StringIO()
        with monkeypatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
            patch.setattr(sys, "stdin", StringIO(question))
            for name, value in environment.items():
                patch.setenv(name, value)
            code = import_module(module).main()
        return CompletedProcess([module], code, output.getvalue(), errors.getvalue())

    monkeypatch.setattr(launcher, "run_probe", run_probe)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Create the connection ``lake`` of a catalog with a secret and return its properties."""
    properties = catalog_properties(tmp_path)
    connection(monkeypatch, "lake", conn_type="iceberg", extra={**properties, "s3.secret-access-key": CATALOG_SECRET})
    return properties


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a process with the provider installed according to setup.cfg."""
    declared = configparser.ConfigParser()
    declared.read(home.REPOSITORY / "setup.cfg")
    name, version = declared["metadata"]["name"], declared["metadata"]["version"]
    folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = declared["options.entry_points"]
    text = "".join(f"[{group}]\n{entries.strip()}\n" for group, entries in groups.items())
    (folder / "entry_points.txt").write_text(text)
    path = [str(tmp_path), str(home.REPOSITORY), str(home.REPOSITORY / "spark_jobs")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def connection(monkeypatch: pytest.MonkeyPatch, conn_id: str, **fields: Any) -> None:
    """Make an Airflow connection for one test."""
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))


@pytest.fixture
def install() -> Iterator[Install]:
    """Yield a function that puts a DAG file into the DAGs folder for one test and returns its DAG."""
    from airflow.dag_processing.dagbag import DagBag

    files: list[Path] = []

    def put(name: str, source: str) -> DAG:
        path = home.DAGS / f"{name}.py"
        path.write_text(source)
        files.append(path)
        bag = DagBag(str(path), bundle_path=home.DAGS, bundle_name="dags-folder")
        assert bag.import_errors == {}
        (dag,) = bag.dags.values()
        return dag

    yield put
    for path in files:
        path.unlink(missing_ok=True)


@dataclass
class Store:
    """A task state store, which Airflow keeps per task instance across tries."""

    values: dict[str, Any] = field(default_factory=dict)

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.values[key] = value

    def delete(self, key: str) -> None:
        self.values.pop(key, None)


class TaskInstance(SimpleNamespace):
    """The part of a task instance that operators use."""

    def __init__(self, **fields: Any) -> None:
        defaults = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1, "try_number": 1}
        super().__init__(**{**defaults, "stats_tags": {}, "xcom": {}, **fields})

    def xcom_push(self, key: str, value: Any) -> None:
        # Airflow serialises the value
        self.xcom[key] = json.loads(json.dumps(value))


def changed(context: Any, **parts: Any) -> Any:
    """Return a context with some parts replaced; ``Any``, because the fakes do not have Airflow's types."""
    return {**context, **parts}


@pytest.fixture
def context() -> dict[str, Any]:
    """Return the context of one try, without a running Airflow."""
    return {
        "ti": TaskInstance(),
        "dag_run": SimpleNamespace(run_type="scheduled", run_id="r"),
        "task_state_store": Store(),
        "outlet_events": {},
    }


@pytest.fixture
def unassessable(lake: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes tables whose needs only jobs can assess."""

    def make(*tables: str) -> None:
        from airflow_provider_lakecdc.governance import precheck, table_assessment
        from airflow_provider_lakecdc.lake import assess_table
        from tests.airflow_provider_lakecdc.tables import FedTable

        for name in tables:
            FedTable.open(lake).create_namespace_if_not_exists(name.partition(".")[0])
            FedTable(lake, name).ingest("2026-01-01T05:00:00+00:00")

        def assess_job(opened: Any, job: str, options: Any) -> Any:
            is_unassessable = ".".join(opened.table.name()) in tables
            return (
                assess_table.Undecided("its files")
                if is_unassessable
                else assess_table.assess_job(opened, job, options)
            )

        for module in (table_assessment, precheck):
            monkeypatch.setattr(module, "assess_job", assess_job)

    return make


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str]) -> dict[str, Any]:
    """Write a configuration of the provider's DAG files and return it."""
    document = {
        "catalog_conn_id": "lake",
        "source": {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": "debezium-json"},
        "targets": [{"table": "shop.orders", "key": ["id"]}, {"table": "shop.items", "key": ["id"]}],
        "tables_per_application": 1,
        "retries": 0,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document))
    monkeypatch.setenv("LAKECDC_CONFIG", str(path))
    return document
