"""Classification of a job's failure, from its report or the lack of one; tasks that wait for leases are rescheduled."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowRescheduleException

from airflow_provider_lakecdc.exceptions import CLASSES, JobClusterError, LakecdcJobError
from lakecdc.contract.errors import LakecdcError
from lakecdc.contract.report import (
    EXIT_BAD_INPUT,
    EXIT_CONFLICT,
    EXIT_DONE,
    LEASE_HOLDER,
    JobReport,
    TableReport,
    describe,
)
from lakecdc.contract.secrets import mask

# general hints by class; the reason itself has the details
_CLASS_HINTS = {
    "conflict": "A retry starts from the current state. If conflicts continue, put the tasks that share the table or "
    "its source into a pool with one slot.",
    "bad input": "A retry would fail the same way. Fix the problem above, then clear the task.",
    "cluster": "Fix the problem above; a later retry may succeed.",
    "unknown": "See the job's output above this message in the task's log.",
}
# maximum characters of an error in one line
_LONGEST_LINE = 4000
#: symptoms in the output of a job that left no report, and what to do; docs/operations/troubleshooting.md shows them
SYMPTOMS: tuple[tuple[str, str], ...] = (
    (
        r"OutOfMemoryError|Container killed by YARN|OOMKilled|exit code:? (137|-9)\b|\bKilled\b",
        "Increase driver_memory or executor_memory, or run fewer tasks in parallel: memory ran out, or the system "
        "killed the process.",
    ),
    (r"JAVA_HOME is not set|java: (command )?not found", "Install Java 17 on the worker, or set JAVA_HOME."),
    (
        r"unresolved dependenc|not found: org\.|Server access error",
        "Spark cannot load its jars. Check the worker's access to a Maven repository (repositories=, or ivy settings).",
    ),
    (r"No module named", "Install the missing package in Spark's Python; see the packages of the extra [spark]."),
    (r"can't open file|No such file or directory", "A submitted file does not exist on the driver. Check its path."),
    (r"No space left on device", "A disk is full. Free space, perhaps in spark.local.dir."),
    (r"Connection refused|UnknownHostException|timed out", "The driver cannot reach a service. Check its address."),
    (r"AccessDenied|403 Forbidden|NotAuthorizedException", "Grant the credentials the rights that the job needs."),
)
log = logging.getLogger(__name__)
# wait before the job is submitted again
_LEASE_PAUSE = timedelta(minutes=1)
# limit after which a lease of another run is a conflict
_LONGEST_LEASE_WAIT = timedelta(hours=6)


def verdict(
    report: JobReport | None, submit_error: Exception | None, fail_on: Sequence[str] = ()
) -> LakecdcJobError | None:
    """Return the failure of a job to raise, or None; the submission's error counts only without a report.

    :param fail_on: further outcomes that count as failures.
    """
    if report is None:
        text = mask(str(submit_error)) if submit_error else "Its application ended without an error."
        for pattern, hint in SYMPTOMS:
            if re.search(pattern, text):
                return JobClusterError(f"The job left no report. {text}", hint=hint)
        return LakecdcJobError(f"The job left no report. {text}", hint=_CLASS_HINTS["unknown"])
    kind = failure_class(report, fail_on)
    if kind is None:
        return None
    failed = [table for table in report.tables if counts_as_failure(table, fail_on)]
    counts = [len({table.table for table in tables}) for tables in (failed, report.tables)]
    total = f"{counts[0]} of {counts[1]} tables" if report.tables and not report.error else "the whole job"
    lines = "\n".join(f"  {reason}" for reason in (report.error, *(table.line for table in failed)) if reason)
    return CLASSES[kind](f"{report.job} failed ({kind}) for {total}:\n{lines}", hint=_CLASS_HINTS[kind], report=report)


def interrupted(error: BaseException) -> LakecdcJobError:
    """Return the failure of a job whose worker ended before the job reported."""
    cause = "" if isinstance(error, BrokenPipeError) else f" ({describe(error)})"
    return LakecdcJobError(f"The worker's process ended before the job reported{cause}. The job's commits remain.")


def failure_class(report: JobReport, fail_on: Sequence[str] = ()) -> str | None:
    """Return the class of the whole report, or None if nothing failed.

    Of several, by the contract's precedence: unknown, cluster, then bad input.
    """
    code = report.exit_code(tuple(fail_on))
    if code == EXIT_DONE:
        return None
    if code in (EXIT_CONFLICT, EXIT_BAD_INPUT):
        return "conflict" if code == EXIT_CONFLICT else "bad input"
    classes = {table.failure_class for table in report.tables if counts_as_failure(table, fail_on)}
    if report.error:
        classes.add(report.failure_class)
    return "cluster" if classes - {"conflict", "bad input"} == {"cluster"} else "unknown"


def counts_as_failure(table: TableReport, fail_on: Sequence[str] = ()) -> bool:
    """Check whether a table's outcome fails the task."""
    return table.outcome in ("failed", "conflict") or table.outcome in fail_on


def one_line(error: Exception) -> str:
    """Format an error and its hint in one line, truncated, with secrets masked."""
    if isinstance(error, LakecdcJobError):
        text = f"{error.message} {error.hint}" if error.hint else error.message
    elif isinstance(error, LakecdcError):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    return mask(" ".join(text.split()), _LONGEST_LINE)


def reschedule_if_leased(context: Context, report: JobReport | None, fail_on: Sequence[str]) -> None:
    """Reschedule the task if it failed only for tables whose lease another run has, without using a worker or a try.

    Tasks without a scheduler, such as those of a command, are not rescheduled.

    :raises AirflowRescheduleException: the task runs again in a minute.
    """
    if report is None or report.error:
        return
    holders = {
        table.table: table.metrics.get(LEASE_HOLDER) for table in report.tables if counts_as_failure(table, fail_on)
    }
    first_reschedule = getattr(context["ti"], "get_first_reschedule_date", None)
    if not holders or not all(holders.values()) or first_reschedule is None:
        return
    moment = datetime.now(UTC)
    if moment - (first_reschedule(context) or moment) > _LONGEST_LEASE_WAIT:
        return
    for table, holder in holders.items():
        log.warning("%s: %s has the lease; the task runs again in %s.", table, holder, _LEASE_PAUSE)
    raise AirflowRescheduleException(moment + _LEASE_PAUSE)
