"""Explanations of exceptions that come through the JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakecdc.iceberg.explain import explain


def test_errors_of_python_tasks_are_reported_for_any_type(spark: SparkSession) -> None:
    def refused(batches: Iterable[Any]) -> Iterator[Any]:
        import psycopg

        raise psycopg.errors.InsufficientPrivilege("no right: SELECT\nDETAIL: ask for it")
        yield from batches

    with pytest.raises(Exception, match="no right") as caught:
        spark.range(1).mapInArrow(refused, "id bigint").collect()
    explanation = explain(caught.value)
    assert explanation is not None and explanation.text == "psycopg.errors.InsufficientPrivilege: no right: SELECT"
