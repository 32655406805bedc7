"""Key ranges: of the leading key column if the source orders it the same way, else of a hash of the key."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from lakecdc.ingest.api import KeyCondition, KeyRange, number_of, value_text
from lakecdc.sql import quoted_column

# enough for 256 ranges of roughly equal size
_SAMPLED_ROWS = 500_000


@dataclass(frozen=True)
class KeyRanges:
    """The ranges of a table's keys.

    :param number: SQL of a row's number.
    :param bounds: the first number of each range but the first.
    :param condition: the leading key column with all ranges; None if a hash decides, which cannot be pushed down.
    """

    number: str
    bounds: tuple[int, ...]
    condition: KeyCondition | None

    def __len__(self) -> int:
        return len(self.bounds) + 1

    def range_of_row(self) -> str:
        """Return SQL of a row's range, counted from 0."""
        return self._search(0, len(self.bounds))

    def _search(self, low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high) // 2
        above, below = self._search(middle + 1, high), self._search(low, middle)
        return f"IF({self.number} >= CAST('{self.bounds[middle]}' AS bigint), {above}, {below})"

    def ends(self, place: int) -> KeyRange:
        """Return the numbers at which a range begins and ends."""
        ends = [None, *self.bounds, None]
        return KeyRange(ends[place], ends[place + 1])

    def ends_as_text(self, place: int) -> tuple[str | None, str | None]:
        """Return the ends of a range as values of the leading key column, or numbers of a hash."""
        kind, ends = self.condition.kind if self.condition else "bigint", self.ends(place)
        low, high = (None if number is None else value_text(number, kind) for number in (ends.low, ends.high))
        return low, high

    def sample(self, share: float, seed: int) -> list[int]:
        """Choose some of the ranges, at least one, in order."""
        count = max(1, round(len(self) * share))
        return sorted(random.Random(seed).sample(range(len(self)), count))

    def some(self, places: Sequence[int]) -> KeyCondition | None:
        """Return the condition for some ranges; None for everything."""
        if self.condition is None or len(places) == len(self):
            return None
        return replace(self.condition, ranges=tuple(map(self.ends, places)))

    def keys(self, numbers: Sequence[int | None]) -> KeyCondition | None:
        """Return the condition for rows with these numbers; None for everything."""
        if self.condition is None or None in numbers:
            return None
        known = sorted({number for number in numbers if number is not None})
        return replace(self.condition, ranges=tuple(KeyRange(number, number + 1) for number in known))


def cut(rows: DataFrame, count: int, key: Sequence[str], column: KeyCondition | None, most: int) -> KeyRanges:
    """Cut the keys of a table into at most ``most`` ranges of roughly equal size; large tables are sampled."""
    number = number_of(column.column, column.kind) if column else None
    if number is None:
        column = None
        number = f"xxhash64({', '.join(map(quoted_column, key))})"
    if count > _SAMPLED_ROWS:
        rows = rows.sample(_SAMPLED_ROWS / count, seed=0)
    shares = ", ".join(f"{place / most}D" for place in range(1, most))
    quantiles = rows.selectExpr(f"percentile_approx({number}, array({shares}))").first() if shares else None
    bounds = tuple(sorted({int(bound) for bound in (quantiles[0] if quantiles else None) or ()}))
    return KeyRanges(number, bounds, column)
