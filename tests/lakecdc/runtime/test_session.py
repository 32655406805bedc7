"""Initial settings of a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from pyspark import SparkConf

from lakecdc.contract.errors import InputError, SpecError, UnsupportedError
from lakecdc.contract.spec import Catalog
from lakecdc.object_store.open_catalog import served
from lakecdc.runtime.session import delete_cache, open_session, python_tasks, task_memory, use_catalog
from tests.conftest import CATALOG, Lake

if TYPE_CHECKING:
    import pyarrow as pa

_CACHE = "spark.sql.iceberg.executor-cache."
MIB = 1024**2


@pytest.mark.parametrize(
    ("settings", "entry", "total"),
    [
        ({}, 16, 32),
        ({"spark.executor.memory": "16g", "spark.master": "yarn"}, 256, 512),
        ({"spark.executor.memory": "16g", "spark.master": "local[2]"}, 16, 32),
        ({"spark.driver.memory": "4096", "spark.master": "local[2]"}, 64, 128),
        ({"spark.executor.memory": "400m", "spark.master": "spark://somewhere:7077"}, 6, 12),
    ],
)
def test_delete_cache_grows_with_the_heap(settings: dict[str, str], entry: int, total: int) -> None:
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    assert delete_cache(conf) == {
        _CACHE + "max-entry-size": str(entry * MIB),
        _CACHE + "max-total-size": str(total * MIB),
    }


def test_a_users_limit_takes_precedence() -> None:
    conf = SparkConf(loadDefaults=False).set(_CACHE + "max-entry-size", "5")
    assert list(delete_cache(conf)) == [_CACHE + "max-total-size"]


def test_the_session_has_a_delete_cache_limit(lake: Lake) -> None:
    assert int(lake.spark.conf.get(_CACHE + "max-entry-size") or 0) >= 16 * MIB


def test_a_job_keeps_the_settings_of_its_session(lake: Lake) -> None:
    spark = open_session(Catalog(CATALOG, lake.properties), "another job")
    assert spark.conf.get("spark.sql.shuffle.partitions") == "1"


def test_a_catalog_in_a_missing_folder_is_bad_input(lake: Lake, tmp_path: Path) -> None:
    properties = {**lake.properties, "uri": f"sqlite:///{tmp_path}/gone/catalog.db"}
    with pytest.raises(InputError, match="Cannot open the catalog 'elsewhere'.*gone' does not exist"):
        use_catalog(lake.spark, Catalog("elsewhere", properties))


def test_only_its_session_knows_the_endpoint_of_an_object_store(lake: Lake, tmp_path: Path) -> None:
    catalog = Catalog("objects_alone", {"type": "object_store", "warehouse": f"file://{tmp_path}/lake"})
    use_catalog(lake.spark, catalog)
    uri, token = (lake.spark.conf.get(f"spark.sql.catalog.objects_alone.{name}") for name in ("uri", "token"))
    assert uri is not None and uri.startswith("http://127.0.0.1:") and token
    # neither the application's page nor a list of settings shows it
    assert token not in str(lake.spark.sparkContext.getConf().getAll()) + str(lake.sql("SET").collect())
    with pytest.raises(HTTPError, match="401"):
        urlopen(f"{uri}/v1/namespaces")
    # a later job in this application uses the same endpoint
    session = lake.spark.newSession()
    use_catalog(session, catalog)
    assert session.conf.get("spark.sql.catalog.objects_alone.uri") == uri
    assert served("objects_alone") is not None and served("lake") is None


def test_an_object_store_that_cannot_be_opened_is_reported_with_the_reason(lake: Lake) -> None:
    with pytest.raises(SpecError, match="needs a warehouse"):
        use_catalog(lake.spark, Catalog("objects_nowhere", {"type": "object_store"}))
    with pytest.raises(UnsupportedError, match="gs://"):
        use_catalog(lake.spark, Catalog("objects_nowhere", {"type": "object_store", "warehouse": "gs://bucket/lake"}))


@pytest.mark.parametrize(
    ("master", "settings", "share"),
    [
        ("local", {}, 1024),
        ("local[4]", {"spark.driver.memory": "4g", "spark.executor.memory": "64g"}, 1024),
        ("local[2,3]", {"spark.driver.memory": "3000m"}, 1500),
        ("yarn", {"spark.executor.memory": "8g", "spark.executor.cores": "4"}, 2048),
        ("yarn", {"spark.executor.memory": "8g", "spark.executor.cores": "4", "spark.task.cpus": "2"}, 4096),
        ("k8s://https://h", {"spark.executor.memory": "8g", "spark.executor.pyspark.memory": "2g"}, 2048),
        ("spark://h:7077", {"spark.executor.cores": "1", "spark.task.cpus": "2"}, 1024),
    ],
)
def test_a_task_gets_its_share_of_the_executors_memory(master: str, settings: dict[str, str], share: int) -> None:
    conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
    assert task_memory(conf.get) == share


@pytest.mark.parametrize("name", ["spark.python.daemon.module", "spark.executorEnv.PYTHONPATH"])
def test_a_users_python_takes_precedence(name: str) -> None:
    conf = SparkConf(loadDefaults=False)
    assert name in python_tasks(conf, "local[4]")
    assert not python_tasks(conf.set(name, "theirs"), "local[4]")


def test_tasks_on_other_machines_do_not_use_the_local_library() -> None:
    assert not python_tasks(SparkConf(loadDefaults=False), "yarn")


def imported(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the names of modules that a task has imported at its start."""
    import sys

    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"name": sorted(sys.modules)})


def archives(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the archives in which a task searches for a missing module."""
    import importlib.util
    import sys
    import zipimport

    import pyarrow as pa

    for _ in batches:
        importlib.util.find_spec("found_nowhere")
        finders = sys.path_importer_cache.items()
        paths = [path for path, finder in finders if isinstance(finder, zipimport.zipimporter)]
        yield pa.RecordBatch.from_pydict({"path": paths})


def test_tasks_do_not_search_modules_in_jars(lake: Lake) -> None:
    # pyspark passes the jars of spark.jars.packages to each task, and Spark its own to the first daemon
    assert ".jar" in str(lake.spark.conf.get("spark.submit.pyFiles"))
    for _ in range(2):
        rows = lake.spark.range(1).coalesce(1).mapInArrow(archives, "path string").collect()
        assert rows and not [row["path"] for row in rows if row["path"].endswith(".jar")]


def test_tasks_start_with_the_modules_they_need(lake: Lake) -> None:
    names = lake.spark.range(1).coalesce(1).mapInArrow(imported, "name string").collect()
    modules = {row["name"] for row in names}
    assert {"duckdb", "pyiceberg.io.pyarrow", "lakecdc.runtime.worker"} <= modules
    assert "pandas" not in modules
