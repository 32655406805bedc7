"""Descriptions of Spark's stages, for Spark's UI and the job's log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_DESCRIPTION = "spark.job.description"


@contextmanager
def described(spark: SparkSession, table: str, job: str) -> Iterator[None]:
    """Describe all Spark jobs of this thread inside the context by their table.

    :param job: that works on the table.
    """
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(f"{job} {table}")
    try:
        yield
    finally:
        # None removes it
        context.setJobDescription(before)  # type: ignore[arg-type]


def description_of(context: SparkContext, stage: int) -> str | None:
    """Return the description of a stage; None if it has none.

    :param stage: its id.
    """
    description = context._jsc.sc().statusStore().lastStageAttempt(stage).description()
    return str(description.get()) if description.isDefined() else None
