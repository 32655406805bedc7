"""How a job's failure reaches Airflow: one class per kind, because the kind decides whether a retry helps."""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from lakecdc.contract.report import JobReport


class LakecdcJobError(AirflowException):
    """A job failed and it is not known that a retry is useless.

    :param message: what happened, to which table.
    :param hint: what the reader should do.
    :param report: the job's report, if it left one.
    """

    #: the kind as reports name it: conflict, bad input, cluster or unknown
    failure_class = "unknown"

    def __init__(self, message: str, *, hint: str | None = None, report: JobReport | None = None) -> None:
        super().__init__(f"{message}\nHint: {hint}" if hint else message)
        self.message = message
        self.hint = hint
        self.report = report


class JobConflictError(LakecdcJobError):
    """Another writer was faster; nothing was published and a retry soon mends it."""

    failure_class = "conflict"


class JobClusterError(LakecdcJobError):
    """Spark, the source or the catalog was out of reach or out of resources; a later retry may mend it."""

    failure_class = "cluster"


class JobBadInputError(LakecdcJobError, AirflowFailException):
    """The spec or what it names is wrong; Airflow fails the task at once, because a retry would repeat it."""

    failure_class = "bad input"


CLASSES: dict[str, type[LakecdcJobError]] = {
    kind.failure_class: kind for kind in (LakecdcJobError, JobConflictError, JobClusterError, JobBadInputError)
}
