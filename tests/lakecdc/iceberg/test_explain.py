"""What happened, out of exceptions that come through the JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakecdc.iceberg.explain import explain


def test_the_error_of_a_python_task_is_reported_whatever_its_type(spark: SparkSession) -> None:
    def refused(batches: Iterable[Any]) -> Iterator[Any]:
        import psycopg

        raise psycopg.errors.InsufficientPrivilege("no right: SELECT\nDETAIL: ask for it")
        yield from batches

    with pytest.raises(Exception, match="no right") as caught:
        spark.range(1).mapInArrow(refused, "id bigint").collect()
    told = explain(caught.value)
    assert told is not None and told.text == "psycopg.errors.InsufficientPrivilege: no right: SELECT"
