"""One-line explanation of an exception from the JVM."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lakecdc.contract import errors
from lakecdc.contract.errors import CommitStateUnknownError, LakecdcError, is_refusal
from lakecdc.iceberg.jvm import COMMIT_STATE_UNKNOWN, CONFLICTS, java_causes

# Python errors may have any name; library errors begin with their module
_BLAME = re.compile(r"([\w.]*(Error|Exception)|(?!org\.apache\.)\w+(\.\w+)+): \S")
# a trace has only the message of these
_OURS = re.compile(rf"{re.escape(errors.__name__)}\.(\w+): (.*)")
# how Spark refuses a null key
_IS_NULL = "[NOT_NULL_ASSERT_VIOLATION]"
# Spark names the file around the cause
_FILE = re.compile(r"Encountered error while reading file (\S+?)\.?\s")


@dataclass(frozen=True)
class Explanation:
    """The innermost cause.

    :param text: its class and the first line of its message, and the file that was being read.
    :param bad_data: a value of the input does not fit, so a retry cannot help (SQLSTATE class 22, data exception, and
        P0001, which ingestion raises itself).
    :param refused: a server refuses the login or has no such database; a retry cannot help either.
    """

    text: str
    bad_data: bool
    refused: bool = False


def explain(error: BaseException) -> Explanation | None:
    """Explain a py4j or Spark exception; return None for any other."""
    causes = list(java_causes(error))
    if not causes:
        # pyspark keeps only the trace of what a Python task raises
        trace = str(error) if type(error).__name__ == "PythonException" else ""
        blamed = _blamed(trace)
        return Explanation(blamed, False) if blamed else None
    state, file, refused = None, None, False
    for cause in causes:
        state, read = _state(cause, "getSqlState") or state, _FILE.search(f"{cause.getMessage() or ''} ")
        file = read[1] if read else file
        said = f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"
        refused = refused or is_refusal(said, _state(cause, "getSQLState"))
    innermost = causes[-1]
    message = str(innermost.getMessage() or "").strip()
    lines = message.splitlines() or [""]
    reason = _blamed(message) or lines[0].strip()
    name = innermost.getClass().getSimpleName()
    text = reason if _BLAME.match(reason) else f"{name}: {reason}"
    where = f", in {file}" if file and file not in text else ""
    bad_data = (state or "").startswith(("22", "P0001")) or _IS_NULL in text
    return Explanation(f"{text}{where}", bad_data, refused)


def as_ours(error: BaseException, table: str | None = None) -> LakecdcError | None:
    """Return the lakecdc error behind an exception; None for any other.

    That is an error raised in a task, or an unknown commit state of a Spark statement.
    """
    if COMMIT_STATE_UNKNOWN in _class_names(error):
        return unknown_commit(table)
    explanation = explain(error)
    match = _OURS.match(explanation.text) if explanation else None
    kind = getattr(errors, match[1], None) if match else None
    return kind(match[2]) if match and kind else None


def is_conflict(error: BaseException) -> bool:
    """Check whether a Spark statement lost against another writer's commit."""
    return not CONFLICTS.isdisjoint(_class_names(error))


def unknown_commit(table: str | None) -> CommitStateUnknownError:
    """Create the error for a commit that may or may not have arrived."""
    return CommitStateUnknownError(
        "The catalog did not say whether the commit arrived, and the table does not show it or cannot be read.",
        table=table,
        hint="Written files were left in place. Check the catalog, then run again.",
    )


def _class_names(error: BaseException) -> set[str]:
    return {str(cause.getClass().getSimpleName()) for cause in java_causes(error)}


def _blamed(trace: str) -> str | None:
    """Return the last line of a Python task's trace that names an error."""
    lines = [line.strip() for line in trace.splitlines()]
    return next((line for line in reversed(lines) if _BLAME.match(line)), None)


def _state(java: Any, getter: str) -> str | None:
    try:
        return str(getattr(java, getter)())
    except Exception:  # py4j raises when the class has no such method
        return None
