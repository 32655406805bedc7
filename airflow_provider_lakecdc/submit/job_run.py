"""What a task tells of its job in XCom, for the page of its report: all but the facts by table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakecdc.contract.report import now

if TYPE_CHECKING:
    from airflow_provider_lakecdc.exceptions import LakecdcJobError
    from lakecdc.contract.report import JobReport

#: XCom with what :meth:`JobRun.to_xcom` makes, there as soon as the job begins
JOB_RUN_KEY = "lakecdc_job_run"


@dataclass(frozen=True)
class JobRun:
    """One run of a job by a task.

    :param tables: it works on, side tables not among them.
    :param is_dry_run: nothing is changed, whatever the outcomes say.
    :param started_at: ISO-8601 in UTC.
    :param finished_at: the same; None while the job runs.
    :param spark_application_id: None if no Spark was started.
    :param error: what has failed, and what to do.
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
        """The same run at its end.

        :param report: what the job has left, if anything.
        :param failure: what the task fails with.
        """
        return replace(
            self,
            finished_at=now(),
            spark_application_id=report.spark_application_id if report else None,
            error=str(failure) if failure else None,
        )

    @property
    def took(self) -> float | None:
        """Seconds from beginning to end; None while the job runs."""
        if self.finished_at is None:
            return None
        return (datetime.fromisoformat(self.finished_at) - datetime.fromisoformat(self.started_at)).total_seconds()

    def to_xcom(self) -> dict[str, Any]:
        """The run as plain JSON."""
        return {**asdict(self), "tables": list(self.tables)}

    @classmethod
    def from_xcom(cls, value: Mapping[str, Any]) -> JobRun:
        """Read a run back."""
        return cls(**{**value, "tables": tuple(value["tables"])})
