"""Which stretches of a source have been read: half-open ranges of moments as text of one width."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

Range = tuple[str, str]
#: start of a range that has no beginning
BEGINNING = ""
# a summary has no room for more
_MOST = 40


def text(moment: datetime) -> str:
    """Return a moment as text that sorts by time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def with_range(ranges: Sequence[Sequence[str]], new: Range) -> list[Range]:
    """Ranges with a further one; those that touch become one. The oldest are forgotten if they are too many."""
    found: list[Range] = []
    for low, high in sorted([*((r[0], r[1]) for r in ranges), new]):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found[-_MOST:]


def read_through(ranges: Sequence[Range], before: str | None, new: Range) -> str:
    """Moment up to which everything has been read, gaps before the first reading aside.

    An interval that leaves a gap does not move it, nor does one that was left out long ago.

    :param ranges: with the new one.
    :param before: the moment before; None for a table that was never fed.
    """
    if before is None:
        return new[1]
    return next((high for low, high in ranges if low <= before <= high), before)
