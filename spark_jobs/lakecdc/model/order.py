"""The order key: one fixed-width text whose byte order is the order of events.

Hexadecimal digits, so that text order is numeric order::

    4  epoch       number of the source's identity; a failover or restore begins a new one
    16 position    commit position at the source, the coarse coordinate
    16 ordinal     position inside the transaction, the fine coordinate
    1  rank        0 full-load or snapshot read, 8 change: a read never beats a change of the same position
    12 time        source time in milliseconds, decides where positions tie
    16 offset      place of arrival (Kafka offset, line number), decides last
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

_Place = TypeVar("_Place", bound=Hashable)
#: of changes that came one after another in a partition, those whose positions rise: order keys of the first one, of
#: the first with the newest source time, and of the one with the highest position
Stretch = Sequence[str]

RANK_READ, RANK_CHANGE = 0, 8
ARRIVAL_DIGITS = 16
#: digits before the place of arrival, which is all that differs in an event sent again
EVENT_DIGITS = 4 + 16 + 16 + 1 + 12
WIDTH = EVENT_DIGITS + ARRIVAL_DIGITS
# where the time begins
_TIME = EVENT_DIGITS - 12
#: the end of the year 9999, milliseconds since 1970
LAST_TIME = 253_402_300_799_999


def order_key(
    epoch: int, position: int, ordinal: int = 0, rank: int = RANK_CHANGE, time: int = 0, offset: int = 0
) -> str:
    """Return the order key of one event.

    :param epoch: 0 to 65535.
    :param position: unsigned 64-bit.
    :param ordinal: unsigned 64-bit.
    :param time: milliseconds since 1970.
    :param offset: unsigned 64-bit.
    """
    return f"{epoch:04x}{position:016x}{ordinal:016x}{rank:x}{time:012x}{offset:016x}"


def order_sql(
    epoch: str, position: str, ordinal: str = "0", rank: str = "8", time: str = "0", offset: str = "0"
) -> str:
    """Return the same as a Spark SQL expression.

    :param epoch: SQL of a non-negative integer, as are the others (``position`` and ``ordinal`` may be negative
        longs that stand for unsigned ones: ``hex`` writes two's complement). A time that has no place counts as the
        nearest one that has.
    """

    def digits(sql: str, width: int) -> str:
        return f"lpad(lower(hex(cast({sql} as bigint))), {width}, '0')"

    bounded = time if time == "0" else f"least(greatest({time}, 0L), {LAST_TIME}L)"
    parts = (digits(epoch, 4), digits(position, 16), digits(ordinal, 16), digits(rank, 1), digits(bounded, 12))
    return f"concat({', '.join(parts)}, {digits(offset, 16)})"


def time_of(order: str) -> int:
    """Return the source time in an order key, milliseconds since 1970."""
    return int(order[_TIME : _TIME + 12], 16)


def moment(micros: int) -> datetime:
    """Return microseconds since 1970 as a moment in UTC, whatever the zone of this process."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def is_change(order: str) -> bool:
    """Whether an event is a change, not a read of a snapshot."""
    return order[_TIME - 1] == f"{RANK_CHANGE:x}"


def is_higher(order: str, than: str) -> bool:
    """Whether one event stands at a higher position than another."""
    return order[:20] > than[:20]


def arrival_of(order: str) -> int:
    """Return the place of arrival in an order key."""
    return int(order[EVENT_DIGITS:], 16)


def highest(orders: Iterable[tuple[_Place, str]]) -> dict[_Place, str]:
    """Return the highest of several order keys of each place they are told for.

    :param orders: place, such as a partition, and order key.
    """
    found: dict[_Place, str] = {}
    for place, order in orders:
        found[place] = max(order, found.get(place, ""))
    return found


def lowest(orders: Iterable[tuple[_Place, str]]) -> dict[_Place, str]:
    """Return the lowest of several order keys of each place they are told for, see :func:`highest`."""
    found: dict[_Place, str] = {}
    for place, order in orders:
        found[place] = min(order, found.get(place, order))
    return found


def rises(order: str) -> bool:
    """Whether the position is that of the commit, so that it rises from one change to the next.

    That of the record alone, which stands for both then, falls where transactions overlap.
    """
    return order[4:20] != order[20:36]


@dataclass(frozen=True)
class Marks:
    """How far a table has come.

    :param partitions: highest order key applied by ``topic/partition``; None if there are none to trust.
    :param high: highest order key applied at all; None if nothing was.
    """

    partitions: Mapping[str, str] | None = None
    high: str | None = None

    def first_late(self, lowest: Mapping[str, str]) -> str | None:
        """Return the lowest order key of an event not above the mark of its own partition; None without one.

        :param lowest: lowest order key of an event by ``topic/partition``.
        """
        marks = self.partitions or {}
        return min((low for place, low in lowest.items() if place not in marks or low <= marks[place]), default=None)

    def may_hold(self, lowest: Mapping[str, str]) -> bool:
        """Whether the table may hold one of some events, or a newer state of its row, already.

        :param lowest: see :meth:`first_late`.
        """
        late = self.first_late(lowest)
        return bool(self.high and late and late <= self.high)


def joined(lists: Iterable[Mapping[str, Sequence[Stretch]]]) -> dict[str, list[Stretch]]:
    """All stretches of each partition.

    :param lists: stretches by partition.
    """
    found: dict[str, list[Stretch]] = {}
    for one in lists:
        for partition, stretches in one.items():
            found.setdefault(partition, []).extend(stretches)
    return found


def void_sql(order: str, truncate: str) -> str:
    """Return SQL that is true for an event from before a TRUNCATE.

    A row that a snapshot has read at an unknown place in the log is below all changes; it is judged by its time.

    :param order: SQL of the event's order key.
    :param truncate: order key of the TRUNCATE.
    """
    placeless = f"startswith({order}, '{truncate[:4]}{0:016x}') AND substr({order}, {_TIME}, 1) = '{RANK_READ:x}'"
    later = f"substr({order}, {_TIME + 1}, 12) > '{truncate[_TIME : _TIME + 12]}'"
    return f"({order} < '{truncate}' AND NOT ({placeless} AND {later}))"
