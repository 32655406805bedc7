"""From a report, or its absence, to one classified failure with a hint."""

from __future__ import annotations

import re
from collections.abc import Sequence

from airflow_provider_lakecdc.exceptions import CLASSES, JobClusterError, LakecdcJobError
from lakecdc.contract.errors import LakecdcError
from lakecdc.contract.report import EXIT_BAD_INPUT, EXIT_CONFLICT, EXIT_DONE, JobReport, TableReport, describe
from lakecdc.contract.secrets import mask

# what helps against any failure of a class: the cause, and what to do about it, are the reason's
_CLASS_HINTS = {
    "conflict": "A retry starts from the current state. If conflicts go on, give the tasks that share the table or its "
    "source a common pool with one slot.",
    "bad input": "A retry would fail alike; mend what the reason names, then clear the task.",
    "cluster": "Let it retry once what the reason names is mended.",
    "unknown": "The task's log holds the job's own output above this message.",
}
# characters of an error in one line
_LONGEST_LINE = 4000
# what stands in the output of a job that did not get as far as a report
_SYMPTOMS: tuple[tuple[str, str], ...] = (
    (
        r"OutOfMemoryError|Container killed by YARN|OOMKilled|exit code:? (137|-9)\b|\bKilled\b",
        "Raise driver_memory or executor_memory, or let fewer tasks run at once: memory ran out, or the system ended "
        "the process for its sake.",
    ),
    (r"JAVA_HOME is not set|java: (command )?not found", "Install Java 17 on the worker, or set JAVA_HOME."),
    (
        r"unresolved dependenc|not found: org\.|Server access error",
        "Spark could not load its jars: check the worker's way to a Maven repository (repositories=, or ivy settings).",
    ),
    (r"No module named", "A Python package is missing in Spark's Python; see what the extra [spark] installs."),
    (r"can't open file|No such file or directory", "A file the job was submitted with is not there on the driver."),
    (r"No space left on device", "A disk is full, perhaps spark.local.dir."),
    (r"Connection refused|UnknownHostException|timed out", "A service could not be reached from the driver."),
    (r"AccessDenied|403 Forbidden|NotAuthorizedException", "The credentials do not allow what the job needs."),
)


def verdict(
    report: JobReport | None, submit_error: Exception | None, fail_on: Sequence[str] = ()
) -> LakecdcJobError | None:
    """Judge a job by its report; the exit code of spark-submit counts only if there is no report.

    :param report: what the job has left, if anything.
    :param submit_error: what spark-submit ended with, if it failed.
    :param fail_on: outcomes to count as failures although they are not.
    :return: the failure to raise, or None if the job did its work.
    """
    if report is None:
        return _no_report(submit_error)
    kind = failure_class(report, fail_on)
    if kind is None:
        return None
    reasons = [report.error] if report.error else []
    reasons += [table.line for table in report.tables if counts_as_failure(table, fail_on)]
    failed = {table.table for table in report.tables if counts_as_failure(table, fail_on)}
    named = {table.table for table in report.tables}
    total = f"{len(failed)} of {len(named)} tables" if report.tables and not report.error else "the whole job"
    lines = "\n".join(f"  {reason}" for reason in reasons)
    return CLASSES[kind](f"{report.job} failed ({kind}) for {total}:\n{lines}", hint=_CLASS_HINTS[kind], report=report)


def interrupted(error: BaseException) -> LakecdcJobError:
    """Return the failure of a job whose worker ended before the job reported.

    :param error: what ended the task. A broken pipe says only that Airflow's process above the task is gone.
    """
    cause = "" if isinstance(error, BrokenPipeError) else f" ({describe(error)})"
    return LakecdcJobError(f"The worker's process ended before the job reported{cause}. What the job committed stands.")


def failure_class(report: JobReport, fail_on: Sequence[str] = ()) -> str | None:
    """The class of the whole report; if several apply, the contract's precedence: unknown and cluster, then bad input.

    :return: conflict, bad input, cluster, unknown, or None if nothing failed.
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
    """Tell whether a table's outcome makes the task fail."""
    return table.outcome in ("failed", "conflict") or table.outcome in fail_on


def one_line(error: Exception) -> str:
    """Return an error and its remedy in one line, cut where it is long, secrets hidden."""
    if isinstance(error, LakecdcJobError):
        text = f"{error.message} {error.hint}" if error.hint else error.message
    elif isinstance(error, LakecdcError):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    return mask(" ".join(text.split()), _LONGEST_LINE)


def _no_report(submit_error: Exception | None) -> LakecdcJobError:
    text = mask(str(submit_error)) if submit_error else "spark-submit ended without an error."
    for pattern, hint in _SYMPTOMS:
        if re.search(pattern, text):
            return JobClusterError(f"The job left no report. {text}", hint=hint)
    return LakecdcJobError(f"The job left no report. {text}", hint=_CLASS_HINTS["unknown"])
