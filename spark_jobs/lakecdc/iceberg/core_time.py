"""CPU time that tasks of a Spark application have taken, which is the same however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

_ENDS_ARRIVE_MS = 2000


class CoreTime:
    """CPU time of the tasks that have run since this was made: of executors, and of :func:`counted` Python tasks.

    Spark tells the first by stage, for the newest thousand (``spark.ui.retainedStages``), and knows nothing of the
    processes that run Python.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._first = self._next_stage()
        self._in_python = _in_python(self._context).value

    def seconds(self) -> float:
        """CPU seconds of all tasks that have ended by now."""
        context = self._context._jsc.sc()
        # the ends of tasks are told behind the result of their job, if the bus is not too busy
        with suppress(Py4JJavaError):
            context.listenerBus().waitUntilEmpty(_ENDS_ARRIVE_MS)
        store, nanoseconds = context.statusStore(), 0
        for stage in range(self._first, self._next_stage()):
            # one that Spark has forgotten
            with suppress(Py4JJavaError):
                nanoseconds += store.lastStageAttempt(stage).executorCpuTime()
        return nanoseconds / 1e9 + float(_in_python(self._context).value - self._in_python)

    def _next_stage(self) -> int:
        return int(self._context._jsc.sc().dagScheduler().nextStageId())


@dataclass(frozen=True)
class _Counted:
    task: Callable[[Iterator[Any]], Iterable[Any]]
    spent: Accumulator[float]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        begun = time.process_time()
        try:
            yield from self.task(batches)
        finally:
            self.spent.add(time.process_time() - begun)


def counted(spark: SparkSession, task: Callable[[Iterator[Any]], Iterable[Any]]) -> Callable[[Any], Iterator[Any]]:
    """Have the CPU time of a Python task be part of :class:`CoreTime`.

    :param task: for ``mapInArrow``.
    """
    return _Counted(task, _in_python(spark.sparkContext))


@lru_cache(maxsize=1)
def _in_python(context: SparkContext) -> Accumulator[float]:
    """Seconds of all counted tasks of an application."""
    return context.accumulator(0.0)
