"""Keep the values of rows out of reports and logs, unless they are asked for."""

from __future__ import annotations

import re

# text quoted by Spark and Arrow, from the first quote to the last, because values may contain quotes; numbers and dates
_VALUE = re.compile(r"'.*'|(?<![\w#])-?\d[\w.:+-]*")


def without_values(message: str) -> str:
    """Remove row values from a library's message."""
    return _VALUE.sub("\u2026", message.partition("\n")[0])
