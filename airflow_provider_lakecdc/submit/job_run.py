"""State of a task's job in XCom, for the report page; results by table are separate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from airflow_provider_lakecdc.exceptions import LakecdcJobError
from lakecdc.contract.report import JobReport, now

#: XCom with :meth:`JobRun.to_xcom`, pushed when the job begins
JOB_RUN_KEY = "lakecdc_job_run"


@dataclass(frozen=True)
class JobRun:
    """A run of a job by a task.

    :param tables: the tables to work on, without side tables.
    :param is_dry_run: whether nothing is changed, whatever the outcomes.
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
