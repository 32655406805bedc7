"""CPU time of a Spark application's tasks, independent of the machine's load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

_ENDS_ARRIVE_MS = 2000
_UNFINISHED = ("ACTIVE", "PENDING")


class CoreTime:
    """CPU time of the tasks since its creation: of executors, and of Python tasks by :func:`run_tasks`.

    Spark reports executors by stage, the newest thousand (``spark.ui.retainedStages``), but not Python processes: a
    long job has to read :meth:`seconds` before Spark drops a stage.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context, self._lock = spark.sparkContext, Lock()
        self._next, self._unfinished = self._next_stage(), set[int]()
        self._in_python, self._in_executors = _in_python(self._context).value, 0

    def seconds(self) -> float:
        """Return the CPU seconds of all finished stages."""
        context = self._context._jsc.sc()
        # task ends are reported after the result of their job, unless the bus is too busy
        with suppress(Py4JJavaError):
            context.listenerBus().waitUntilEmpty(_ENDS_ARRIVE_MS)
        with self._lock:
            end = self._next_stage()
            known, new = self._unfinished, range(self._next, end)
            self._next, self._unfinished = end, set()
            for stage in (*known, *new):
                try:
                    data = context.statusStore().lastStageAttempt(stage)
                except Py4JJavaError:
                    # Spark has dropped it, or does not list it yet
                    self._unfinished |= {stage} - known
                    continue
                if data.status().toString() in _UNFINISHED:
                    self._unfinished.add(stage)
                else:
                    self._in_executors += data.executorCpuTime()
            return self._in_executors / 1e9 + float(_in_python(self._context).value - self._in_python)

    def _next_stage(self) -> int:
        scheduler = self._context._jsc.sc().dagScheduler()
        # a stopped application has none
        return int(scheduler.nextStageId()) if scheduler else 0


def run_tasks(rows: DataFrame, task: Callable[[Iterator[Any]], Iterable[Any]], schema: T.StructType | str) -> DataFrame:
    """Run a Python task over rows by ``mapInArrow``; :class:`CoreTime` includes its CPU time."""
    return rows.mapInArrow(partial(_run_counted, task, _in_python(rows.sparkSession.sparkContext)), schema)


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
