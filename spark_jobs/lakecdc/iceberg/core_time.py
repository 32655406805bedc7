"""CPU time of a Spark application's tasks, independent of the machine's load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

_ENDS_ARRIVE_MS = 2000


class CoreTime:
    """CPU time of the tasks since its creation: of executors, and of :func:`counted` Python tasks.

    Spark reports executors by stage, the newest thousand (``spark.ui.retainedStages``), but not Python processes.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._first = self._next_stage()
        self._in_python = _in_python(self._context).value

    def seconds(self) -> float:
        """Return the CPU seconds of all finished tasks."""
        context = self._context._jsc.sc()
        # task ends are reported after the result of their job, unless the bus is too busy
        with suppress(Py4JJavaError):
            context.listenerBus().waitUntilEmpty(_ENDS_ARRIVE_MS)
        store, nanoseconds = context.statusStore(), 0
        for stage in range(self._first, self._next_stage()):
            # Spark may have dropped it
            with suppress(Py4JJavaError):
                nanoseconds += store.lastStageAttempt(stage).executorCpuTime()
        return nanoseconds / 1e9 + float(_in_python(self._context).value - self._in_python)

    def _next_stage(self) -> int:
        return int(self._context._jsc.sc().dagScheduler().nextStageId())


def counted(spark: SparkSession, task: Callable[[Iterator[Any]], Iterable[Any]]) -> Callable[[Any], Iterator[Any]]:
    """Include the CPU time of a Python task for ``mapInArrow`` in :class:`CoreTime`."""
    return partial(_run_counted, task, _in_python(spark.sparkContext))


def _run_counted(
    task: Callable[[Iterator[Any]], Iterable[Any]], spent: Accumulator[float], batches: Iterator[Any]
) -> Iterator[Any]:
    begun = time.process_time()
    try:
        yield from task(batches)
    finally:
        spent.add(time.process_time() - begun)


@lru_cache(maxsize=1)
def _in_python(context: SparkContext) -> Accumulator[float]:
    return context.accumulator(0.0)
