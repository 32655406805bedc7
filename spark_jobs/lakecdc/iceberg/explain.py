"""What an exception that came out of the JVM is about, in one line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lakecdc.contract import errors
from lakecdc.contract.errors import LakecdcError
from lakecdc.contract.refusals import is_refusal

_MAX_CAUSES = 20
# errors of Python's may be called anything, those of libraries have their module before them
_BLAME = re.compile(r"([\w.]*(Error|Exception)|(?!org\.apache\.)\w+(\.\w+)+): \S")
# of these a trace holds the message alone
_OURS = re.compile(rf"{re.escape(errors.__name__)}\.(\w+): (.*)")
# Spark names the file around the cause
_FILE = re.compile(r"Encountered error while reading file (\S+?)\.?\s")


@dataclass(frozen=True)
class Explanation:
    """The innermost cause.

    :param text: its class and the first line of its message, and the file that was read meanwhile.
    :param bad_data: a value of the input does not fit; a retry cannot help (SQLSTATE class 22, data exception).
    :param refused: a server does not take the login, or has no such database; a retry cannot help either.
    """

    text: str
    bad_data: bool
    refused: bool = False


def explain(error: BaseException) -> Explanation | None:
    """Explain a py4j or Spark exception; None for any other.

    :param error: what was caught.
    """
    java = getattr(error, "java_exception", None)
    if java is None:
        java = getattr(error, "_origin", None)
    if java is None:
        # of what a Python task raises, pyspark keeps the trace alone
        trace = str(error) if type(error).__name__ == "PythonException" else ""
        found = _blamed(trace)
        return Explanation(found, False) if found else None
    innermost, state, file, refused = java, _sql_state(java), _file(java), _is_refusal(java)
    for _ in range(_MAX_CAUSES):
        cause = innermost.getCause()
        if cause is None:
            break
        innermost = cause
        state, file = _sql_state(innermost) or state, _file(innermost) or file
        refused = refused or _is_refusal(innermost)
    message = str(innermost.getMessage() or "").strip()
    lines = message.splitlines() or [""]
    told = _blamed(message) or lines[0].strip()
    name = innermost.getClass().getSimpleName()
    text = told if _BLAME.match(told) else f"{name}: {told}"
    where = f", in {file}" if file and file not in text else ""
    return Explanation(f"{text}{where}", (state or "").startswith("22"), refused)


def raised_by_task(error: BaseException) -> LakecdcError | None:
    """The error of ours that a task ended with; None for any other.

    :param error: what was caught where the job's result was asked for.
    """
    told = explain(error)
    found = _OURS.match(told.text) if told else None
    kind = getattr(errors, found[1], None) if found else None
    return kind(found[2]) if found and kind else None


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
