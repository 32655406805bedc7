"""The number of deleted keys that a task of Iceberg's reader can hold."""

from __future__ import annotations

import pytest
from pyspark import SparkConf

from lakecdc.iceberg.reader_memory import keys_that_fit


@pytest.mark.parametrize(
    ("master", "settings", "keys"),
    [
        ("local[2]", {"spark.driver.memory": "1g"}, 536_870),
        ("local[2]", {"spark.driver.memory": "4g", "spark.executor.memory": "64g"}, 2_147_483),
        ("yarn", {"spark.executor.memory": "8g", "spark.executor.cores": "4"}, 2_147_483),
        ("yarn", {"spark.executor.memory": "8g", "spark.executor.cores": "4", "spark.task.cpus": "4"}, 8_589_934),
        # Python's memory is not available to the reader
        ("yarn", {"spark.executor.memory": "2g", "spark.executor.pyspark.memory": "16g"}, 2_147_483),
    ],
)
def test_the_number_of_keys_follows_the_heap_of_a_task(master: str, settings: dict[str, str], keys: int) -> None:
    conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
    assert keys_that_fit(conf.get) == keys
