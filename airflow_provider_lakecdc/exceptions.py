"""Failures of jobs in Airflow: one class per kind, as the kind decides whether a retry helps."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from lakecdc.contract.report import JobReport


class LakecdcJobError(AirflowException):
    """A job failed, and a retry may succeed; it has a hint, and the job's report if there is one."""

    #: failure class in reports: conflict, bad input, cluster or unknown
    failure_class = "unknown"

    def __init__(self, message: str, *, hint: str | None = None, report: JobReport | None = None) -> None:
        super().__init__(f"{message}\nHint: {hint}" if hint else message)
        self.message = message
        self.hint = hint
        self.report = report


class JobConflictError(LakecdcJobError):
    """Another writer committed first; nothing was published, and a retry usually succeeds."""

    failure_class = "conflict"


class JobClusterError(LakecdcJobError):
    """Spark, the source or the catalog was unavailable or out of resources; a later retry may succeed."""

    failure_class = "cluster"


class JobBadInputError(LakecdcJobError, AirflowFailException):
    """The spec is invalid or refers to something missing; Airflow fails the task without a retry."""

    failure_class = "bad input"


CLASSES: dict[str, type[LakecdcJobError]] = {
    kind.failure_class: kind for kind in (LakecdcJobError, JobConflictError, JobClusterError, JobBadInputError)
}
