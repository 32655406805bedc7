"""Jobs through their operators on a Spark standalone cluster, whose executors have a packed environment alone."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tests.airflow_provider_lakecdc.home as home  # isort: skip
from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from airflow_provider_lakecdc.operators.ingest import IngestOperator
from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator
from airflow_provider_lakecdc.operators.sort_data_files import SortDataFilesOperator
from lakecdc.executors import PACKAGES
from local_services.spark_cluster import SparkCluster
from tests.airflow_provider_lakecdc.conftest import TaskInstance, connection
from tests.airflow_provider_lakecdc.conftest import context as context
from tests.airflow_provider_lakecdc.conftest import lake as lake
from tests.airflow_provider_lakecdc.tables import FedTable
from tests.lakecdc.ingest.histories import History, lines
from tests.readers import duckdb_rows

pytestmark = pytest.mark.services

ENVIRONMENT = home.REPOSITORY / "build" / "cluster-env.tar.gz"
TABLE = "shop.orders"
# as docs/clusters.md has it
PACKED = {
    "archives": f"{ENVIRONMENT}#environment",
    "env_vars": {"PYSPARK_PYTHON": "./environment/bin/python"},
    "conf": {"spark.executor.memory": "1g", "spark.driver.host": "127.0.0.1"},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two workers of a core each."""
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(autouse=True)
def _submitted_there(cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    home.migrate()
    connection(monkeypatch, "spark_default", conn_type="spark", host=cluster.master)


def run(operator: type[LakecdcJobOperator], context: Any, **arguments: Any) -> dict[str, Any]:
    """Facts of the job's table."""
    context = {**context, "ti": TaskInstance(run_id=str(time.time_ns()))}
    made = operator(task_id="t", catalog_conn_id="lake", look_first=False, **{**PACKED, **arguments})
    return made.execute(context)[TABLE]


def ingestion(folder: Path) -> dict[str, Any]:
    """Arguments of an operator that feeds the table from files."""
    source = {"type": "files", "path": f"{folder}/*.jsonl", "format": "debezium-json", "records": "kafka"}
    return {"source": source, "targets": [{"table": TABLE, "key": ["id"], "source_table": "shop.t"}]}


def rows(properties: dict[str, str]) -> list[tuple[Any, ...]]:
    """The table's rows as DuckDB reads them."""
    location = FedTable.open(properties).load_table(TABLE).metadata_location
    return sorted(duckdb_rows(location, "id, name, n, doc"))


def killing(cluster: SparkCluster, operator: type[LakecdcJobOperator], context: Any, **arguments: Any) -> str:
    """The outcome of a job that loses an executor with its first Python task, and one some seconds later."""
    killed, ended = list[int](), threading.Event()

    def kill() -> None:
        while not ended.wait(0.05) and not cluster.is_busy():
            pass
        killed.extend(cluster.kill_executors(1))
        ended.wait(6)
        killed.extend(cluster.kill_executors(1))

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        facts = run(operator, context, **arguments)
    finally:
        ended.set()
        killer.join()
    assert killed
    return str(facts["outcome"])


def test_jobs_lose_nothing_with_an_executor(
    cluster: SparkCluster, context: Any, lake: dict[str, str], tmp_path: Path
) -> None:
    history = History(random.Random(3))
    for key in range(40):
        history.insert(key)
    (tmp_path / "0.jsonl").write_text(lines(history.events))
    done = len(history.events)
    assert run(IngestOperator, context, **ingestion(tmp_path))["outcome"] == "done"
    for key in list(history.rows)[::5]:
        history.update(key, touch_doc=True)
    history.delete(1)
    (tmp_path / "1.jsonl").write_text(lines(history.events[done:]))
    assert killing(cluster, IngestOperator, context, **ingestion(tmp_path)) == "done"
    assert rows(lake) == history.expected()
    assert killing(cluster, RewriteDeleteFilesOperator, context, tables=TABLE) == "done"
    assert killing(cluster, SortDataFilesOperator, context, tables=TABLE, min_overlap_depth=1.0) == "done"
    assert rows(lake) == history.expected()


@pytest.mark.parametrize(
    ("python", "told"),
    [
        ("./nowhere/bin/python", "do not find their Python"),
        # the one that the environments are made from
        (f"{sys.base_prefix}/bin/python3", f"lacks {PACKAGES[0]}"),
    ],
)
def test_a_python_that_does_not_fit_is_told_before_anything_is_written(
    context: Any, lake: dict[str, str], tmp_path: Path, python: str, told: str
) -> None:
    (tmp_path / "0.jsonl").write_text(lines(History.of(1, 5).events))
    with pytest.raises(JobBadInputError, match=told) as refused:
        run(IngestOperator, context, **ingestion(tmp_path), archives=None, env_vars={"PYSPARK_PYTHON": python})
    assert "docs/clusters.md" in str(refused.value)
    assert not FedTable.open(lake).table_exists(TABLE)
