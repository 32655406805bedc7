"""What an exception that came out of the JVM is about, in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lakecdc.contract import errors
from lakecdc.contract.errors import CommitStateUnknownError, LakecdcError
from lakecdc.contract.refusals import is_refusal
from lakecdc.iceberg.jvm import COMMIT_STATE_UNKNOWN, CONFLICTS

_MAX_CAUSES = 20
# errors of Python's may be called anything, those of libraries have their module before them
_BLAME = re.compile(r"([\w.]*(Error|Exception)|(?!org\.apache\.)\w+(\.\w+)+): \S")
# of these a trace holds the message alone
_OURS = re.compile(rf"{re.escape(errors.__name__)}\.(\w+): (.*)")
# how Spark refuses a null key
_IS_NULL = "[NOT_NULL_ASSERT_VIOLATION]"
# Spark names the file around the cause
_FILE = re.compile(r"Encountered error while reading file (\S+?)\.?\s")


@dataclass(frozen=True)
class Explanation:
    """The innermost cause.

    :param text: its class and the first line of its message, and the file that was read meanwhile.
    :param bad_data: a value of the input does not fit; a retry cannot help (SQLSTATE class 22, data
        exception, and P0001, which ingestion raises itself), or there is none.
    :param refused: a server does not take the login, or has no such database; a retry cannot help either.
    """

    text: str
    bad_data: bool
    refused: bool = False


def explain(error: BaseException) -> Explanation | None:
    """Explain a py4j or Spark exception; None for any other.

    :param error: what was caught.
    """
    java = _java(error)
    if java is None:
        # of what a Python task raises, pyspark keeps the trace alone
        trace = str(error) if type(error).__name__ == "PythonException" else ""
        found = _blamed(trace)
        return Explanation(found, False) if found else None
    state, file, refused = None, None, False
    for innermost in _causes(java):
        state, file = _sql_state(innermost) or state, _file(innermost) or file
        refused = refused or _is_refusal(innermost)
    message = str(innermost.getMessage() or "").strip()
    lines = message.splitlines() or [""]
    told = _blamed(message) or lines[0].strip()
    name = innermost.getClass().getSimpleName()
    text = told if _BLAME.match(told) else f"{name}: {told}"
    where = f", in {file}" if file and file not in text else ""
    bad_data = (state or "").startswith(("22", "P0001")) or _IS_NULL in text
    return Explanation(f"{text}{where}", bad_data, refused)


def as_ours(error: BaseException, table: str | None = None) -> LakecdcError | None:
    """The error of ours that an exception comes to; None for any other.

    One that a task ended with, and that of a statement of Spark's whose commit nobody knows about.

    :param error: what was caught where the result was asked for.
    :param table: what it happened to.
    """
    java = _java(error)
    if java is not None and any(cause.getClass().getSimpleName() == COMMIT_STATE_UNKNOWN for cause in _causes(java)):
        return unknown_commit(table)
    told = explain(error)
    found = _OURS.match(told.text) if told else None
    kind = getattr(errors, found[1], None) if found else None
    return kind(found[2]) if found and kind else None


def is_conflict(error: BaseException) -> bool:
    """Whether a statement of Spark's has lost against another writer's commit."""
    java = _java(error)
    return java is not None and any(cause.getClass().getSimpleName() in CONFLICTS for cause in _causes(java))


def unknown_commit(table: str | None) -> CommitStateUnknownError:
    """The error of a commit that may or may not have arrived."""
    return CommitStateUnknownError(
        "The catalog did not say whether the commit arrived, and the table does not show it or cannot be read.",
        table=table,
        hint="Written files were left in place. Check the catalog, then run again.",
    )


def _java(error: BaseException) -> Any:
    """The Java exception behind one of py4j's or Spark's; None if there is none."""
    java = getattr(error, "java_exception", None)
    return java if java is not None else getattr(error, "_origin", None)


def _causes(java: Any) -> Iterator[Any]:
    """A Java exception and its causes, from the outermost one on."""
    for _ in range(_MAX_CAUSES):
        yield java
        java = java.getCause()
        if java is None:
            return


def _blamed(trace: str) -> str | None:
    """The line of a Python task's trace that says what happened, which is its last."""
    lines = [line.strip() for line in trace.splitlines()]
    return next((line for line in reversed(lines) if _BLAME.match(line)), None)


def _file(java: Any) -> str | None:
    found = _FILE.search(f"{java.getMessage() or ''} ")
    return found[1] if found else None


def _is_refusal(java: Any) -> bool:
    try:
        state = str(java.getSQLState())
    except Exception:  # no java.sql.SQLException
        state = None
    return is_refusal(f"{java.getClass().getSimpleName()}: {java.getMessage()}", state)


def _sql_state(java: Any) -> str | None:
    try:
        return str(java.getSqlState())
    except Exception:  # py4j raises when the class has no such method
        return None
