"""Log the progress of a long job at a readable pace."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from pyspark import SparkContext

from lakecdc.contract.runtime import PROGRESS
from lakecdc.iceberg.core_time import CoreTime
from lakecdc.iceberg.threads import description_of

log = logging.getLogger(__name__)

#: seconds between two lines
PACE = 30.0


class ProgressLog:
    """Progress of work in pieces.

    :param table: its name, or another subject.
    :param what: the pieces, such as ``file groups``.
    :param total_bytes: of all pieces; 0 if unknown.
    """

    def __init__(
        self, table: str, what: str, total: int, total_bytes: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._table, self._what, self._total, self._total_bytes = table, what, total, total_bytes
        self._clock = clock
        self._begun = self._logged = clock()
        self._done = self._bytes = 0

    def add(self, done: int, bytes: int = 0) -> None:
        """Count finished pieces and their bytes; log them at the end, or if the last line is old enough."""
        self._done += done
        self._bytes += bytes
        now = self._clock()
        if self._done >= self._total or now - self._logged >= PACE:
            self._logged = now
            log.info("%s", self._line(now - self._begun))

    def _line(self, seconds: float) -> str:
        parts = [f"{PROGRESS}{self._table}: {self._done} of {self._total} {self._what}"]
        if self._total_bytes:
            size, unit = (1024**3, "GB") if self._total_bytes >= 1024**3 else (1024**2, "MB")
            parts.append(f"{self._bytes / size:.1f} of {self._total_bytes / size:.1f} {unit}")
        share = self._bytes / self._total_bytes if self._total_bytes else self._done / self._total
        if self._done >= self._total:
            parts.append(f"in {_duration(seconds)}")
        elif share:
            parts.append(f"about {_duration(seconds / share - seconds)} left")
        return ", ".join(parts)


@contextmanager
def log_long_stages(context: SparkContext, core_time: CoreTime, pace: float = PACE) -> Iterator[None]:
    """Log the progress and end of Spark stages that are active at two checks, ``pace`` seconds apart.

    :param core_time: read at each check, before Spark drops the stages.
    """
    over = Event()
    watch = Thread(target=_log_stages, args=(context, core_time, pace, over), name="lakecdc-progress", daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def _log_stages(context: SparkContext, core_time: CoreTime, pace: float, over: Event) -> None:
    tracker, before, descriptions = context.statusTracker(), set[int](), dict[int, str]()
    while not over.wait(pace):
        try:
            core_time.seconds()
            active = set(tracker.getActiveStageIds())
            infos = [info for stage in sorted(active & before) if (info := tracker.getStageInfo(stage))]
            descriptions |= {info.stageId: description_of(context, info.stageId) or "Spark" for info in infos}
        except Exception:
            # the session may have stopped; the job itself reports why
            log.debug("Cannot read Spark's stages", exc_info=True)
            return
        before = active
        for stage in sorted(descriptions.keys() - active):
            log.info("%s%s: stage %d is over", PROGRESS, descriptions.pop(stage), stage)
        for info in infos:
            done = f"{info.numCompletedTasks} of {info.numTasks} tasks are done"
            log.info("%s%s: stage %d, %s", PROGRESS, descriptions[info.stageId], info.stageId, done)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 90 * 60 else f"{seconds / 3600:.1f} hours"
