"""What a job says of itself while it runs, told on to Airflow: where its pages are, and how far it has come."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.submit.links import SPARK_UI_KEY
from lakecdc.contract import runtime
from lakecdc.contract.report import now

#: XCom with how far the job has come, a list of what :class:`Progress` holds, the newest last
PROGRESS_KEY = "lakecdc_progress"

log = logging.getLogger(__name__)

# XComs are requests to Airflow's API server
_PACE = 5.0
_KEPT = 20


@dataclass(frozen=True)
class Progress:
    """How far something has come that a job is at work on.

    :param what: a table, the job and a table for what Spark tells, or the job for all of its tables.
    :param how_far: in words.
    :param at: ISO-8601 moment when the job said so.
    """

    what: str
    how_far: str
    at: str


def progress_of(told: Iterable[Mapping[str, str]]) -> Iterator[Progress]:
    """Read the XCom back, the newest first."""
    yield from reversed([Progress(**each) for each in told])


class Heard:
    """Keeps in XCom what the output of a job says; no failure of that is the job's.

    :param push: takes key and value of an XCom.
    :param clock: gives seconds.
    """

    def __init__(self, push: Callable[[str, Any], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._push, self._clock = push, clock
        self._progress: dict[str, Progress] = {}
        self._pushed = -_PACE
        self._has_spark_ui = False
        self._logged_application: str | None = None

    @property
    def listeners(self) -> dict[str, Callable[[str], None]]:
        """Who is called with the rest of a line of the job's log, by its beginning."""
        return {
            runtime.SPARK_UI: self._hear_spark_ui,
            runtime.EVENT_LOG: self._hear_event_log,
            runtime.PROGRESS: self._hear_progress,
        }

    def end(self) -> None:
        """Point the link to Spark's page to the history server if it will know the application, else remove it."""
        server = settings.history_server()
        if server and self._logged_application:
            self._keep(SPARK_UI_KEY, f"{server}/history/{quote(self._logged_application, safe='')}/jobs/")
        elif self._has_spark_ui:
            # the driver's page has ended with the driver
            self._keep(SPARK_UI_KEY, "")

    def _hear_spark_ui(self, address: str) -> None:
        self._has_spark_ui = True
        self._keep(SPARK_UI_KEY, address)

    def _hear_event_log(self, application: str) -> None:
        self._logged_application = application

    def _hear_progress(self, told: str) -> None:
        what, _, how_far = told.partition(": ")
        # moves to the end
        self._progress.pop(what, None)
        self._progress[what] = Progress(what, how_far, now())
        for oldest in list(self._progress)[:-_KEPT]:
            del self._progress[oldest]
        if self._clock() - self._pushed >= _PACE:
            self._pushed = self._clock()
            self._keep(PROGRESS_KEY, [asdict(each) for each in self._progress.values()])

    def _keep(self, key: str, value: Any) -> None:
        try:
            self._push(key, value)
        except Exception:
            log.warning("What the job has told cannot be kept in the XCom %s.", key, exc_info=True)
