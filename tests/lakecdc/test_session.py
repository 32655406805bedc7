"""The settings a session begins with."""

from __future__ import annotations

import pytest
from pyspark import SparkConf

from lakecdc.session import delete_cache
from tests.conftest import Lake

_CACHE = "spark.sql.iceberg.executor-cache."
MIB = 1024**2


@pytest.mark.parametrize(
    ("settings", "entry", "total"),
    [
        ({}, 128, 256),
        ({"spark.executor.memory": "16g", "spark.master": "yarn"}, 2048, 4096),
        ({"spark.executor.memory": "16g", "spark.master": "local[2]"}, 128, 256),
        ({"spark.driver.memory": "4096", "spark.master": "local[2]"}, 512, 1024),
        ({"spark.executor.memory": "400m", "spark.master": "spark://somewhere:7077"}, 64, 128),
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
    assert int(lake.spark.conf.get(_CACHE + "max-entry-size") or 0) >= 64 * MIB
