"""Build conditions on a leading key column to read parts of a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lakecdc.sql import quoted_column

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_SHORT_DECIMAL = re.compile(r"decimal\((\d|1[0-8]),0\)")
_FIRST = datetime(1970, 1, 1)
# more conditions would make a statement too long, and one statement each would be too many
_MOST_CONDITIONS = 256


@dataclass(frozen=True)
class KeyRange:
    """A half-open range of numbers that represent keys.

    :param low: None for the beginning, which includes rows whose number is null.
    :param high: None for the end.
    """

    low: int | None
    high: int | None

    def condition(self, column: str, literal: Callable[[int], str]) -> str:
        """Return SQL that is true in the range, for SQL of the column and of the value of a number."""
        low = [] if self.low is None else [f"{column} >= {literal(self.low)}"]
        high = [] if self.high is None else [f"{column} < {literal(self.high)}"]
        bounds = " AND ".join([*low, *high]) or "1 = 1"
        return f"({bounds} OR {column} IS NULL)" if high and not low else f"({bounds})"


@dataclass(frozen=True)
class KeyCondition:
    """A condition on the leading key column, named ``column`` at the source or in the table; may match more rows.

    :param kind: the column's Spark SQL type.
    """

    column: str
    kind: str
    ranges: tuple[KeyRange, ...]

    def conditions(self, column: str, literal: Callable[[int], str], most: int = _MOST_CONDITIONS) -> list[str]:
        """Return SQL conditions that together cover the ranges; see :meth:`KeyRange.condition`.

        :param most: maximum number of conditions; ranges share one if there are more.
        """
        each = -(-len(self.ranges) // most)
        groups = [self.ranges[i : i + each] for i in range(0, len(self.ranges), each)]
        return [" OR ".join(one.condition(column, literal) for one in group) for group in groups]

    def text(self, number: int) -> str:
        """Return the value of a number as text that databases read too, in UTC."""
        return key_value_text(number, self.kind)

    def in_spark(self) -> str:
        """Return Spark SQL for the ranges, including the gaps between them if they are many."""
        first, last = self.ranges[0], self.ranges[-1]
        ranges = (KeyRange(first.low, last.high),) if len(self.ranges) > _MOST_CONDITIONS else self.ranges
        return replace(self, ranges=ranges).conditions(quoted_column(self.column), self._literal, 1)[0]

    def _literal(self, number: int) -> str:
        return f"CAST('{self.text(number)}' AS {self.kind})"


def key_number(column: str, kind: str) -> str | None:
    """Return SQL of an order-preserving number for a value; None if its type has none."""
    name = quoted_column(column)
    if kind in _INTEGERS or _SHORT_DECIMAL.fullmatch(kind):
        return f"CAST({name} AS bigint)"
    if kind == "date":
        return f"CAST(unix_date({name}) AS bigint)"
    # the session is in UTC
    return f"unix_micros(CAST({name} AS timestamp))" if kind in ("timestamp", "timestamp_ntz") else None


def key_value_text(number: int, kind: str) -> str:
    """Convert a number to its value as text; times are in UTC."""
    if kind == "date":
        return f"{(_FIRST + timedelta(days=number)).date()}"
    if kind in ("timestamp", "timestamp_ntz"):
        return (_FIRST + timedelta(microseconds=number)).isoformat(" ", "microseconds")
    return str(number)
