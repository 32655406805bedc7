"""State and progress of a task's job in XCom, for the report page and links; results by table are separate."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.submit.links import SPARK_UI_KEY
from lakecdc.contract import runtime
from lakecdc.contract.report import JobReport, now

#: XCom with :meth:`JobRun.to_xcom`, pushed when the job begins
JOB_RUN_KEY = "lakecdc_job_run"
#: XCom with the job's progress, newest last, each ``what`` (a table; the job and a table, for Spark's progress; or the
#: job, for all its tables), ``how_far`` in words and ``at``, ISO-8601
PROGRESS_KEY = "lakecdc_progress"
log = logging.getLogger(__name__)
# every XCom is a request to Airflow's API server
_PACE = 5.0
_MOST_ENTRIES = 20


@dataclass(frozen=True)
class JobRun:
    """A run of a job by a task.

    :param tables: the tables to work on, without side tables.
    :param is_dry_run: whether nothing is changed, regardless of the outcomes.
    :param started_at: ISO-8601 in UTC, like its end.
    :param finished_at: None while the job runs.
    :param spark_application_id: None if Spark was not started.
    :param error: the failure and what to do.
    """

    job: str
    catalog_conn_id: str
    tables: tuple[str, ...]
    is_dry_run: bool
    started_at: str
    finished_at: str | None = None
    spark_application_id: str | None = None
    error: str | None = None

    def ended(self, report: JobReport | None, failure: LakecdcJobError | None) -> JobRun:
        """Return the run at its end, with the task's failure, if any."""
        return replace(
            self,
            finished_at=now(),
            spark_application_id=report.spark_application_id if report else None,
            error=str(failure) if failure else None,
        )

    @property
    def took(self) -> float | None:
        """Return the duration in seconds; None while the job runs."""
        if self.finished_at is None:
            return None
        return (datetime.fromisoformat(self.finished_at) - datetime.fromisoformat(self.started_at)).total_seconds()

    def to_xcom(self) -> dict[str, Any]:
        return {**asdict(self), "tables": list(self.tables)}

    @classmethod
    def from_xcom(cls, value: Mapping[str, Any]) -> JobRun:
        return cls(**{**value, "tables": tuple(value["tables"])})


class ProgressForwarder:
    """Push information from a job's output to XCom by key and value; errors never fail the job."""

    def __init__(self, push: Callable[[str, Any], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._push, self._clock = push, clock
        self._progress: dict[str, dict[str, str]] = {}
        self._pushed = -_PACE
        self._has_spark_ui = False
        self._logged_application: str | None = None

    @property
    def listeners(self) -> dict[str, Callable[[str], None]]:
        """Return the listeners by prefix of a log message."""
        return {
            runtime.SPARK_UI: self._on_spark_ui,
            runtime.EVENT_LOG: self._on_event_log,
            runtime.PROGRESS: self._on_progress,
        }

    def end(self) -> None:
        """Point the Spark UI link to the history server if that gets the application's events, else remove it."""
        server = settings.history_server()
        if server and self._logged_application:
            self._push_safely(SPARK_UI_KEY, f"{server}/history/{quote(self._logged_application, safe='')}/jobs/")
        elif self._has_spark_ui:
            # the driver's UI is gone
            self._push_safely(SPARK_UI_KEY, "")

    def _on_spark_ui(self, address: str) -> None:
        self._has_spark_ui = True
        self._push_safely(SPARK_UI_KEY, address)

    def _on_event_log(self, application: str) -> None:
        self._logged_application = application

    def _on_progress(self, text: str) -> None:
        what, _, how_far = text.partition(": ")
        # keep the order of arrival
        self._progress.pop(what, None)
        self._progress[what] = {"what": what, "how_far": how_far, "at": now()}
        for oldest in list(self._progress)[:-_MOST_ENTRIES]:
            del self._progress[oldest]
        if self._clock() - self._pushed >= _PACE:
            self._pushed = self._clock()
            self._push_safely(PROGRESS_KEY, list(self._progress.values()))

    def _push_safely(self, key: str, value: Any) -> None:
        try:
            self._push(key, value)
        except Exception:
            log.warning("Cannot push the job's progress to XCom %s.", key, exc_info=True)
