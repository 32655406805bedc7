"""What Spark's stages are for, which Spark's own page and the log of a job tell."""

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
    """Have Spark say of all that this thread asks of it meanwhile which table it is for.

    :param job: that works on the table.
    """
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(f"{job} {table}")
    try:
        yield
    finally:
        # None takes it away
        context.setJobDescription(before)  # type: ignore[arg-type]


def description_of(context: SparkContext, stage: int) -> str | None:
    """What a stage is for; None if nobody has said.

    :param stage: its id.
    """
    found = context._jsc.sc().statusStore().lastStageAttempt(stage).description()
    return str(found.get()) if found.isDefined() else None
