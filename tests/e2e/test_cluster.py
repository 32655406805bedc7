"""Jobs through their operators on a Spark standalone cluster, also with nothing but a packed environment there."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.table import Table

import tests.airflow_provider_lakecdc.home as home  # isort: skip
from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from airflow_provider_lakecdc.operators.compact_data_files import CompactDataFilesOperator
from airflow_provider_lakecdc.operators.expire_snapshots import ExpireSnapshotsOperator
from airflow_provider_lakecdc.operators.ingest import IngestOperator
from airflow_provider_lakecdc.operators.remove_orphan_files import RemoveOrphanFilesOperator
from airflow_provider_lakecdc.operators.rewrite_delete_files import RewriteDeleteFilesOperator
from airflow_provider_lakecdc.operators.sort_data_files import SortDataFilesOperator
from lakecdc.runtime.executors import PACKAGES
from local_services.spark_classes import INTERPRETED
from local_services.spark_cluster import SparkCluster
from tests.airflow_provider_lakecdc.conftest import TaskInstance, connection
from tests.airflow_provider_lakecdc.conftest import context as context
from tests.airflow_provider_lakecdc.conftest import lake as lake
from tests.airflow_provider_lakecdc.tables import FedTable
from tests.lakecdc.ingest.histories import History, lines
from tests.lakecdc.maintain.orphans.support import age
from tests.on_demand import on_demand
from tests.readers import duckdb_rows

pytestmark = pytest.mark.services

ENVIRONMENT = home.REPOSITORY / "build" / "cluster-env.tar.gz"
TABLE = "shop.orders"
LINES = "shop.lines"
LINES_PER_FILE = 100_000
EVENTS, FILES = 200_000, 4
# the Python that the environments are made from, and none
PYTHONS = [(f"{sys.base_prefix}/bin/python3", f"lacks {PACKAGES[0]}"), ("./nowhere/bin/python", "cannot find Python")]
PRIMES = (2_147_483_647, 1_000_003, 998_244_353)
CONF = {"spark.executor.memory": "1g", "spark.driver.host": "127.0.0.1", **INTERPRETED}
ONE_EXECUTOR = {**CONF, "spark.cores.max": "1"}
# as documented in docs/operations/clusters.md; each executor unpacks the environment, which takes longer than a small
# job
PACKED: dict[str, Any] = {
    "archives": f"{ENVIRONMENT}#environment",
    "env_vars": {"PYSPARK_PYTHON": "./environment/bin/python"},
    "conf": ONE_EXECUTOR,
}
UNPACKED: dict[str, Any] = {"env_vars": {"PYSPARK_PYTHON": sys.executable}, "conf": CONF}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Start two workers of one core each."""
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(autouse=True)
def _submitted_there(cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    home.migrate()
    connection(monkeypatch, "spark_default", conn_type="spark", host=cluster.master)


def run(operator: type[LakecdcJobOperator], context: Any, **arguments: Any) -> set[str]:
    """Run an operator and return the outcomes of its tables."""
    context = {**context, "ti": TaskInstance(run_id=str(time.time_ns()))}
    job_operator = operator(task_id="t", catalog_conn_id="lake", look_first=False, **{**UNPACKED, **arguments})
    return {facts["outcome"] for facts in job_operator.execute(context).values()}


def ingestion(folder: Path) -> dict[str, Any]:
    """Return the arguments of an operator that feeds the table from files."""
    source = {"type": "files", "path": f"{folder}/*.jsonl", "format": "debezium-json", "records": "kafka"}
    return {"source": source, "targets": [{"table": TABLE, "key": ["id"], "source_table": "shop.t"}]}


def rows(properties: dict[str, str], table: str, columns: str) -> list[tuple[Any, ...]]:
    """Return a table's rows as DuckDB reads them."""
    location = FedTable.open(properties).load_table(table).metadata_location
    return sorted(duckdb_rows(location, columns))


def run_with_kills(
    operator: type[LakecdcJobOperator],
    context: Any,
    begun: Callable[[], bool],
    kill: Callable[[], list[int]],
    times: int = 1,
    **arguments: Any,
) -> set[str]:
    """Run a job that loses executors and return the outcomes of its tables.

    :param begun: returns True when they are to be killed.
    :param kill: kills executors and returns their process ids.
    :param times: number of kills, with some seconds in between.
    """
    killed, ended = list[int](), threading.Event()

    def kill_them() -> None:
        while not ended.wait(0.02) and not begun():
            pass
        for number in range(times):
            if number:
                ended.wait(3)
            killed.extend(kill())

    killer = threading.Thread(target=kill_them)
    killer.start()
    try:
        outcomes = run(operator, context, **arguments)
    finally:
        ended.set()
        killer.join()
    assert killed
    return outcomes


def make_lines(properties: dict[str, str]) -> Table:
    """Make a table of small files whose rows take a task some seconds to write."""
    ids = pa.array(range(LINES_PER_FILE), pa.int64())
    texts = pc.binary_join_element_wise(*[pc.cast(pc.multiply(ids, factor), pa.string()) for factor in PRIMES], "-")
    table = FedTable.open(properties).create_table(LINES, pa.table({"id": ids, "text": texts}).schema)
    for number in range(6):
        table.append(pa.table({"id": pc.add(ids, number * LINES_PER_FILE), "text": texts}))
    return table


def deal(events: list[dict[str, Any]], folder: Path, name: str) -> None:
    """Write events to several files of the source, so that each executor reads some."""
    size = -(-len(events) // FILES)
    for number in range(FILES):
        (folder / f"{name}-{number}.jsonl").write_text(lines(events[number * size : (number + 1) * size]))


def writing(table: Table, job: str) -> Callable[[], bool]:
    """Return a function that checks whether a job has begun to write new files."""
    folder = Path(table.location().removeprefix("file://"))

    def written_files() -> set[Path]:
        return {path for path in folder.glob(f"data/lakecdc-{job}-*/**/*") if path.suffix in (".parquet", ".puffin")}

    before = written_files()
    return lambda: bool(written_files() - before)


def unreachable(table: Table) -> set[str]:
    """Return the files in the table's location that none of its snapshots references, as pyiceberg reads them."""
    table = table.refresh()
    reached = {entry for each in (table.inspect.all_files(), table.inspect.all_manifests()) for entry in _paths(each)}
    reached |= {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    known = {path.removeprefix("file://").removeprefix("file:") for path in reached}
    folder = Path(table.location().removeprefix("file://"))
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".metadata.json"))
    # checksums beside files and temporary files of the job are hidden
    visible = (path for path in files if not any(part[0] in "._" for part in path.relative_to(folder).parts))
    return {str(path) for path in visible} - known


def _paths(entries: pa.Table) -> list[str]:
    (column,) = {"file_path", "path"} & {*entries.column_names}
    return entries[column].to_pylist()


def test_jobs_lose_nothing_with_an_executor(
    cluster: SparkCluster, context: Any, lake: dict[str, str], tmp_path: Path
) -> None:
    history = History(random.Random(3))
    for key in range(40):
        history.insert(key)
    (tmp_path / "0.jsonl").write_text(lines(history.events))
    done = len(history.events)
    assert run(IngestOperator, context, **ingestion(tmp_path), **PACKED) == {"done"}
    for key in list(history.rows)[::5]:
        history.update(key, touch_doc=True)
    history.delete(1)
    (tmp_path / "1.jsonl").write_text(lines(history.events[done:]))
    # an executor is lost with the first Python task; ingestion loses another one some seconds later
    one = partial(cluster.kill_executors, 1)
    losing = partial(run_with_kills, context=context, begun=cluster.is_busy, kill=one)
    columns = "id, name, n, doc"
    assert losing(IngestOperator, times=2, **ingestion(tmp_path)) == {"done"}
    assert rows(lake, TABLE, columns) == history.expected()
    assert losing(RewriteDeleteFilesOperator, tables=TABLE) == {"done"}
    assert losing(SortDataFilesOperator, tables=TABLE, min_overlap_depth=1.0) == {"done"}
    assert rows(lake, TABLE, columns) == history.expected()


@pytest.mark.soak
def test_files_of_a_lost_executor_are_removed(cluster: SparkCluster, context: Any, lake: dict[str, str]) -> None:
    FedTable.open(lake).create_namespace("shop")
    table = make_lines(lake)
    expected = rows(lake, LINES, "id, text")
    folder = Path(table.location().removeprefix("file://"))

    def writes() -> bool:
        return any(folder.glob("data/lakecdc-compact_data_files-*/*.parquet"))

    one, both = partial(cluster.kill_executors, 1), partial(cluster.kill_executors, 2)
    assert run_with_kills(CompactDataFilesOperator, context, writes, both, tables=LINES) == {"done"}
    assert rows(lake, LINES, "id, text") == expected
    assert unreachable(table)
    expiring: dict[str, Any] = {"tables": LINES, "max_age": 0, "retain_last": 1}
    assert run_with_kills(ExpireSnapshotsOperator, context, cluster.is_busy, one, **expiring) == {"done"}
    assert len(table.refresh().metadata.snapshots) == 1
    left = unreachable(table)
    assert left and all("lakecdc-compact_data_files" in path for path in left)
    age(folder)
    cleaning: dict[str, Any] = {"tables": LINES, "dry_run": False}
    assert run_with_kills(RemoveOrphanFilesOperator, context, cluster.is_busy, one, **cleaning) == {"done"}
    assert unreachable(table) == set()
    assert rows(lake, LINES, "id, text") == expected


@pytest.mark.soak
def test_event_and_delete_files_of_a_lost_executor_are_removed(
    cluster: SparkCluster, context: Any, lake: dict[str, str], tmp_path: Path
) -> None:
    history, source = History(random.Random(5)), ingestion(tmp_path)
    # so that a task of the rewriting writes many files, one after the other
    source["targets"][0]["partition_by"] = ["bucket(64, id)"]
    both, columns = partial(cluster.kill_executors, 2), "id, name, n, doc"
    for key in range(EVENTS):
        history.insert(key)
    deal(history.events, tmp_path, "inserted")
    assert run(IngestOperator, context, **source) == {"done"}
    table, done = FedTable.open(lake).load_table(TABLE), len(history.events)
    for key in range(0, EVENTS, 2):
        history.update(key, touch_doc=True)
    deal(history.events[done:], tmp_path, "updated")
    assert run_with_kills(IngestOperator, context, writing(table, "ingest"), both, **source) == {"done"}
    assert rows(lake, TABLE, columns) == history.expected()
    of_events = unreachable(table)
    assert of_events and all("/lakecdc-ingest-" in path for path in of_events)
    rewriting = writing(table, "rewrite_delete_files")
    assert run_with_kills(RewriteDeleteFilesOperator, context, rewriting, both, tables=TABLE) == {"done"}
    assert rows(lake, TABLE, columns) == history.expected()
    of_deletes = unreachable(table) - of_events
    assert of_deletes and all("/lakecdc-rewrite_delete_files-" in path for path in of_deletes)
    age(Path(table.location().removeprefix("file://")))
    assert run(RemoveOrphanFilesOperator, context, tables=TABLE, dry_run=False) == {"done"}
    assert unreachable(table) == set()
    assert rows(lake, TABLE, columns) == history.expected()


@pytest.mark.parametrize(("python", "message"), on_demand(PYTHONS, in_ci=PYTHONS[:1]))
def test_an_unsupported_python_is_reported_before_any_write(
    context: Any, lake: dict[str, str], tmp_path: Path, python: str, message: str
) -> None:
    (tmp_path / "0.jsonl").write_text(lines(History.of(1, 5).events))
    with pytest.raises(JobBadInputError, match=message) as refused:
        run(IngestOperator, context, **ingestion(tmp_path), env_vars={"PYSPARK_PYTHON": python}, conf=ONE_EXECUTOR)
    assert "docs/operations/clusters.md" in str(refused.value)
    assert not FedTable.open(lake).table_exists(TABLE)
