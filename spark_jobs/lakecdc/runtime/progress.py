"""How far a long job has come, told in its log at a readable pace."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from lakecdc.contract.runtime import PROGRESS
from lakecdc.iceberg.stages import description_of

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

#: seconds between two lines
PACE = 30.0


class ProgressLog:
    """Work on a table that is done piece by piece.

    :param table: its name, or what else the pieces make up.
    :param what: the pieces, such as ``file groups``.
    :param total: how many there are.
    :param total_bytes: of all pieces; 0 if nobody knows.
    :param clock: gives seconds.
    """

    def __init__(
        self, table: str, what: str, total: int, total_bytes: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._table, self._what, self._total, self._total_bytes = table, what, total, total_bytes
        self._clock = clock
        self._begun = self._told = clock()
        self._done = self._bytes = 0

    def add(self, done: int, bytes: int = 0) -> None:
        """Count pieces that are done, and tell of it at the end or if nothing has been told for a while.

        :param bytes: of these pieces.
        """
        self._done += done
        self._bytes += bytes
        now = self._clock()
        if self._done >= self._total or now - self._told >= PACE:
            self._told = now
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
def long_stages_told(context: SparkContext, pace: float = PACE) -> Iterator[None]:
    """Tell how many tasks are done of each stage of Spark that takes longer than a while, and when it is over.

    :param pace: seconds between two looks; a stage that both see is told of.
    """
    over = Event()
    watch = Thread(target=_tell_stages, args=(context, pace, over), name="lakecdc-progress", daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()


def _tell_stages(context: SparkContext, pace: float, over: Event) -> None:
    tracker, before, told = context.statusTracker(), set[int](), dict[int, str]()
    while not over.wait(pace):
        try:
            active = set(tracker.getActiveStageIds())
            infos = [info for stage in sorted(active & before) if (info := tracker.getStageInfo(stage))]
            told |= {info.stageId: description_of(context, info.stageId) or "Spark" for info in infos}
        except Exception:
            # the session may be gone, and the job itself tells why
            log.debug("Spark tells nothing of its stages", exc_info=True)
            return
        before = active
        for stage in sorted(told.keys() - active):
            log.info("%s%s: stage %d is over", PROGRESS, told.pop(stage), stage)
        for info in infos:
            done = f"{info.numCompletedTasks} of {info.numTasks} tasks are done"
            log.info("%s%s: stage %d, %s", PROGRESS, told[info.stageId], info.stageId, done)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 90 * 60 else f"{seconds / 3600:.1f} hours"
