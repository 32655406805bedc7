"""What an exception that came out of the JVM is about, in one line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_MAX_CAUSES = 20
_BLAME = re.compile(r"^[\w.]*(Error|Exception): \S")


@dataclass(frozen=True)
class Explanation:
    """The innermost cause.

    :param text: its class and the first line of its message.
    :param bad_data: a value of the input does not fit; a retry cannot help (SQLSTATE class 22, data exception).
    """

    text: str
    bad_data: bool


def explain(error: BaseException) -> Explanation | None:
    """Explain a py4j or Spark exception; None for any other.

    :param error: what was caught.
    """
    java = getattr(error, "java_exception", None)
    if java is None:
        java = getattr(error, "_origin", None)
    if java is None:
        return None
    innermost, state = java, _sql_state(java)
    for _ in range(_MAX_CAUSES):
        cause = innermost.getCause()
        if cause is None:
            break
        innermost = cause
        state = _sql_state(innermost) or state
    message = str(innermost.getMessage() or "").strip()
    lines = message.splitlines() or [""]
    # a Python task's trace ends with the line that says what happened
    told = next((line for line in reversed(lines) if _BLAME.match(line.strip())), lines[0]).strip()
    name = innermost.getClass().getSimpleName()
    return Explanation(told if _BLAME.match(told) else f"{name}: {told}", (state or "").startswith("22"))


def _sql_state(java: Any) -> str | None:
    try:
        return str(java.getSqlState())
    except Exception:  # py4j raises when the class has no such method
        return None
