"""State and progress of a task's job in XCom, for the report page, and links to report, tables and Spark's UI."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from airflow.sdk import BaseOperator, BaseOperatorLink, Context
from airflow.sdk.execution_time.xcom import XCom

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.observe.addresses import link_from_airflow
from lakecdc.contract import runtime
from lakecdc.contract.report import JobReport, now

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

#: XCom with :meth:`JobRun.to_xcom`, pushed when the job begins
JOB_RUN_KEY = "lakecdc_job_run"
#: XCom with the job's progress, newest last, each ``what`` (a table; the job and a table, for Spark's progress; or the
#: job, for all its tables), ``how_far`` in words and ``at``, ISO-8601
PROGRESS_KEY = "lakecdc_progress"
#: XComs of the links' addresses, pushed as soon as they are known, so that links work while the job runs and after a
#: failure
REPORT_LINK_KEY = "lakecdc_report_link"
TABLE_LINK_KEY = "lakecdc_table_link"
SPARK_UI_KEY = "spark_ui"
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


class _PushedLink(BaseOperatorLink):
    """A link whose address the operator pushes to XCom."""

    key: ClassVar[str]

    @property
    def xcom_key(self) -> str:
        """Return the XCom key of the address, for Airflow's web page."""
        return self.key

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the pushed address; Airflow calls this again when the task ends."""
        return str(XCom.get_value(ti_key=ti_key, key=self.key) or "")


class JobReportLink(_PushedLink):
    """A link to the job's report on the page Lakehouse."""

    name = "Job report"
    key = REPORT_LINK_KEY


class TableLink(_PushedLink):
    """A link to the job's table on the page Lakehouse; for several tables, to the list of tables."""

    name = "Table"
    key = TABLE_LINK_KEY


class SparkUiLink(_PushedLink):
    """A link to Spark's UI: of the driver while the job runs, then of the history server if there is one."""

    name = "Spark UI"
    key = SPARK_UI_KEY


def push_links(context: Context, catalog_conn_id: str, tables: Sequence[str]) -> None:
    """Push the addresses of a job's report and tables, relative to Airflow's page."""
    ti = context["ti"]
    mapped = None if ti.map_index is None or ti.map_index < 0 else ti.map_index
    report = link_from_airflow("report", dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, map_index=mapped)
    page, name = ("table", tables[0]) if len(tables) == 1 else ("tables", None)
    ti.xcom_push(key=REPORT_LINK_KEY, value=report)
    ti.xcom_push(key=TABLE_LINK_KEY, value=link_from_airflow(page, lake=catalog_conn_id, name=name))
