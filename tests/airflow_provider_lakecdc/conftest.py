"""Fixtures of the provider's tests: an Airflow home of their own, connections, and a stand-in for spark-submit."""

from __future__ import annotations

# first of all: it points Airflow at an empty home before anything imports Airflow
import tests.airflow_provider_lakecdc.home as home  # isort: skip

import configparser
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
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
    """A migrated Airflow in an empty folder."""
    home.migrate()
    return home.HOME


@dataclass
class FakeSpark:
    """The stand-in for spark-submit and what it has noted."""

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
        """Say what the next calls do.

        :param tables: what to report of a table besides or instead of ``done``.
        :param report: whether a report is left at all.
        :param facts: further entries of the report.
        """
        content = {"tables": tables or {}, **facts} if report else None
        behaviour = {"exit": exit, "output": output, "report": content}
        (self.folder / "behaviour.json").write_text(json.dumps(behaviour))

    @property
    def calls(self) -> list[dict[str, Any]]:
        """One entry per call: ``arguments``, ``spec``, ``environment``."""
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """A stand-in for spark-submit on the path, and the connection to go with it."""
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
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The connection ``lake`` of a catalog with a secret; its properties."""
    properties = catalog_properties(tmp_path)
    connection(monkeypatch, "lake", conn_type="iceberg", extra={**properties, "s3.secret-access-key": CATALOG_SECRET})
    return properties


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which the provider is installed, made of what setup.cfg declares."""
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
    """Puts a DAG file into the DAGs folder for one test and returns its DAG."""
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
    """A task state store: what Airflow keeps per task instance over its tries."""

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
        # Airflow serialises what it is given
        self.xcom[key] = json.loads(json.dumps(value))


def changed(context: Any, **parts: Any) -> Any:
    """A context with some parts replaced; ``Any``, because stand-ins are not what Airflow's types say."""
    return {**context, **parts}


@pytest.fixture
def context() -> dict[str, Any]:
    """The context of one try, without an Airflow around it."""
    return {
        "ti": TaskInstance(),
        "dag_run": SimpleNamespace(run_type="scheduled", run_id="r"),
        "task_state_store": Store(),
        "outlet_events": {},
    }


@pytest.fixture
def untold(lake: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make tables of which only jobs can tell what they need."""

    def make(*tables: str) -> None:
        from airflow_provider_lakecdc.governance import precheck, table_assessment
        from airflow_provider_lakecdc.lake import assess_table
        from tests.airflow_provider_lakecdc.tables import FedTable

        for name in tables:
            FedTable.open(lake).create_namespace_if_not_exists(name.partition(".")[0])
            FedTable(lake, name).ingest("2026-01-01T05:00:00+00:00")

        def assess_job(opened: Any, job: str, options: Any) -> Any:
            is_untold = ".".join(opened.table.name()) in tables
            return assess_table.Undecided("its files") if is_untold else assess_table.assess_job(opened, job, options)

        for module in (table_assessment, precheck):
            monkeypatch.setattr(module, "assess_job", assess_job)

    return make


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str]) -> dict[str, Any]:
    """A configuration of the provider's own DAG files."""
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
