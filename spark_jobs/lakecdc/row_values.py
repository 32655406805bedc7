"""Keep the values of rows out of reports and logs, unless they are asked for."""

from __future__ import annotations

import re

# what Spark and Arrow quote, from the first quote to the last, as a value may hold some; and numbers and dates
_VALUE = re.compile(r"'.*'|(?<![\w#])-?\d[\w.:+-]*")


def without_values(message: str) -> str:
    """What another library says of a value, without it."""
    return _VALUE.sub("\u2026", message.partition("\n")[0])
