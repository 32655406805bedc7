from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakecdc.local_relation import local_relation, spread

SCHEMA = "id bigint, name string, price decimal(6,2), small int"
ROWS = [(1, "a", Decimal("1.50"), 3), (2, None, None, None), (2**40, "Zürich 'x'", Decimal("-9999.99"), -1)]


def test_rows_keep_their_order_types_and_nulls(spark: SparkSession) -> None:
    frame = local_relation(spark, ROWS, SCHEMA)
    assert [tuple(row) for row in frame.collect()] == ROWS
    assert [f"{name} {kind}" for name, kind in frame.dtypes] == SCHEMA.split(", ")


def test_an_empty_frame_is_possible(spark: SparkSession) -> None:
    assert local_relation(spark, [], SCHEMA).count() == 0


def test_rows_become_a_local_relation(spark: SparkSession) -> None:
    plan = local_relation(spark, ROWS, SCHEMA)._jdf.queryExecution().optimizedPlan()
    assert plan.getClass().getSimpleName() == "LocalRelation"


@pytest.mark.parametrize(("count", "hands"), [(1, 1), (3, 3), (50, 4)])
def test_rows_are_distributed_round_robin(spark: SparkSession, count: int, hands: int) -> None:
    assert spark.sparkContext.defaultParallelism == 2
    frame = spread(spark, [(number,) for number in range(count)], "id int")
    dealt_rows = frame.select("id", F.spark_partition_id().alias("hand")).collect()
    assert frame.columns == ["id"]
    assert frame.rdd.getNumPartitions() == hands
    assert {row["id"]: row["hand"] for row in dealt_rows} == {number: number % hands for number in range(count)}
