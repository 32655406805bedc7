"""Core time is the CPU time of tasks in the JVM and in Python."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from lakecdc.iceberg.core_time import CoreTime, run_tasks
from tests.on_demand import on_demand

BUSY = 0.4


def busy(batches: Iterable[Any]) -> Iterator[Any]:
    until = time.process_time() + BUSY
    while time.process_time() < until:
        pass
    yield from batches


def waiting(batches: Iterable[Any]) -> Iterator[Any]:
    time.sleep(5 * BUSY)
    yield from batches


@pytest.mark.parametrize("times", on_demand((1, 2), in_ci=(2,)))
def test_python_is_counted_once_by_task(spark: SparkSession, times: int) -> None:
    core_time = CoreTime(spark)
    run_tasks(spark.range(0, times, 1, times), busy, "id bigint").collect()
    assert core_time.seconds() >= times * BUSY
    assert CoreTime(spark).seconds() == 0


def test_the_jvm_is_counted_and_waiting_is_not(spark: SparkSession) -> None:
    core_time = CoreTime(spark)
    run_tasks(spark.range(0, 1, 1, 1), waiting, "id bigint").collect()
    waited = core_time.seconds()
    assert 0 < waited < 4 * BUSY
    spark.range(20_000_000).selectExpr("sum(hash(id))").collect()
    assert core_time.seconds() > waited


def test_a_stopped_application_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Mock()
    spark.sparkContext._jsc.sc.return_value.dagScheduler.return_value = None
    monkeypatch.setattr("lakecdc.iceberg.core_time._in_python", lambda _: Mock(value=0.0))
    assert CoreTime(spark).seconds() == 0
