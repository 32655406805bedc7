"""Time that the tasks of a Spark application have kept cores busy."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENDS_ARRIVE_MS = 2000


def core_seconds(spark: SparkSession) -> float:
    """Seconds of all tasks that have ended so far, on all executors that there are or were."""
    context = spark._jsparkSession.sparkContext()
    # the ends of tasks are told behind the result of their job, if the bus is not too busy
    with suppress(Py4JJavaError):
        context.listenerBus().waitUntilEmpty(_ENDS_ARRIVE_MS)
    executors = context.statusStore().executorList(False)
    return sum(int(executors.apply(number).totalDuration()) for number in range(executors.size())) / 1000
