"""Java class names are looked up only once."""

from __future__ import annotations

import pytest
from py4j.protocol import REFL_GET_UNKNOWN_SUB_COMMAND_NAME, REFLECTION_COMMAND_NAME
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.lakecdc.iceberg.java_commands import sent_commands


def query(spark: SparkSession) -> int:
    """Run a query with functions, Python tasks and a Spark error, as every batch does."""
    with pytest.raises(AnalysisException):
        spark.table("nowhere")
    texts = spark.range(3).select(F.concat(F.col("id"), F.lit("x")).alias("v"))
    texts = texts.mapInArrow(lambda parts: parts, "v string")
    return len(texts.where(F.expr("v <> '1x'")).collect())


def test_classes_are_looked_up_once(spark: SparkSession) -> None:
    assert query(spark) == 2
    with sent_commands(spark) as sent:
        assert query(spark) == 2
    looked_up = REFLECTION_COMMAND_NAME + REFL_GET_UNKNOWN_SUB_COMMAND_NAME
    assert [command for command in sent if command.startswith(looked_up)] == []
