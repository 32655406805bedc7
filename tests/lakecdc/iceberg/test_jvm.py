"""PySpark's names of Java classes, of which none is looked up twice."""

from __future__ import annotations

import pytest
from py4j.protocol import REFL_GET_UNKNOWN_SUB_COMMAND_NAME, REFLECTION_COMMAND_NAME
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.lakecdc.iceberg.java_commands import sent_commands


def query(spark: SparkSession) -> int:
    """A query with what every batch has: functions, Python tasks, an error of Spark."""
    with pytest.raises(AnalysisException):
        spark.table("nowhere")
    texts = spark.range(3).select(F.concat(F.col("id"), F.lit("x")).alias("v"))
    texts = texts.mapInArrow(lambda parts: parts, "v string")
    return len(texts.where(F.expr("v <> '1x'")).collect())


def test_no_class_is_looked_up_twice(spark: SparkSession) -> None:
    assert query(spark) == 2
    with sent_commands(spark) as sent:
        assert query(spark) == 2
    looked_up = REFLECTION_COMMAND_NAME + REFL_GET_UNKNOWN_SUB_COMMAND_NAME
    assert [command for command in sent if command.startswith(looked_up)] == []
