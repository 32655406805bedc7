"""The settings a session begins with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkConf

from lakecdc.session import delete_cache, python_tasks
from tests.conftest import Lake

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


def test_a_users_own_limit_wins() -> None:
    conf = SparkConf(loadDefaults=False).set(_CACHE + "max-entry-size", "5")
    assert list(delete_cache(conf)) == [_CACHE + "max-total-size"]


def test_the_session_has_it(lake: Lake) -> None:
    assert int(lake.spark.conf.get(_CACHE + "max-entry-size") or 0) >= 16 * MIB


@pytest.mark.parametrize("name", ["spark.python.daemon.module", "spark.executorEnv.PYTHONPATH"])
def test_a_users_own_python_wins(name: str) -> None:
    conf = SparkConf(loadDefaults=False)
    assert name in python_tasks(conf, "local[4]")
    assert not python_tasks(conf.set(name, "theirs"), "local[4]")


def test_other_machines_may_not_have_the_library() -> None:
    assert not python_tasks(SparkConf(loadDefaults=False), "yarn")


def imported(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Names of modules that are in a task before it asks for any."""
    import sys

    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"name": sorted(sys.modules)})


def test_tasks_begin_with_what_they_need(lake: Lake) -> None:
    names = lake.spark.range(1).coalesce(1).mapInArrow(imported, "name string").collect()
    found = {row["name"] for row in names}
    assert {"duckdb", "pyiceberg.io.pyarrow", "lakecdc.worker"} <= found
    assert "pandas" not in found
