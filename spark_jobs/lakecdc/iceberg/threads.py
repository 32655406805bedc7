"""Threads of one session, and the descriptions of their Spark jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from lakecdc.iceberg.jvm import ensure_callbacks, jvm

P = ParamSpec("P")
R = TypeVar("R")
_DESCRIPTION = "spark.job.description"


def in_session(spark: SparkSession, target: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function for another thread such that this session is active there.

    A new thread has no active session. What Spark resolves outside of a statement, such as the catalog of a staged
    write (``CatalogManager`` reads ``SQLConf.get``), then sees none of the session's settings, and Iceberg's own
    catalog for staged tables, which it registers in the session, is "not found".
    """
    # the server starts without a lock, so two threads that commit first would start two
    ensure_callbacks(spark)

    def activated(*args: P.args, **kwargs: P.kwargs) -> R:
        jvm(spark).org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
        return target(*args, **kwargs)

    inherited: Callable[P, R] = inheritable_thread_target(spark)(activated)
    return inherited


@contextmanager
def described(spark: SparkSession, table: str, job: str) -> Iterator[None]:
    """Describe all Spark jobs of this thread inside the context by job and table."""
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(f"{job} {table}")
    try:
        yield
    finally:
        # None removes it
        context.setJobDescription(before)  # type: ignore[arg-type]


def description_of(context: SparkContext, stage: int) -> str | None:
    """Return the description of a stage; None if it has none."""
    description = context._jsc.sc().statusStore().lastStageAttempt(stage).description()
    return str(description.get()) if description.isDefined() else None
