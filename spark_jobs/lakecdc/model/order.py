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
#: consecutive changes of a partition with rising positions: order keys of the first change, of the first change with
#: the newest source time, and of the change with the highest position
Stretch = Sequence[str]

RANK_READ, RANK_CHANGE = 0, 8
ARRIVAL_DIGITS = 16
#: digits before the place of arrival; an event that is sent again has the same digits
EVENT_DIGITS = 4 + 16 + 16 + 1 + 12
WIDTH = EVENT_DIGITS + ARRIVAL_DIGITS
# offset of the time
_TIME = EVENT_DIGITS - 12
#: the end of the year 9999, milliseconds since 1970
LAST_TIME = 253_402_300_799_999


def order_key(
    epoch: int, position: int, ordinal: int = 0, rank: int = RANK_CHANGE, time: int = 0, offset: int = 0
) -> str:
    """Return the order key of one event.

    :param epoch: 0 to 65535.
    :param position: unsigned 64-bit, as ``ordinal`` and ``offset``.
    :param time: milliseconds since 1970.
    """
    return f"{epoch:04x}{position:016x}{ordinal:016x}{rank:x}{time:012x}{offset:016x}"


def time_of(order: str) -> int:
    """Return the source time in an order key, milliseconds since 1970."""
    return int(order[_TIME : _TIME + 12], 16)


def moment(micros: int) -> datetime:
    """Convert microseconds since 1970 to a moment in UTC."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def is_change(order: str) -> bool:
    """Check whether an event is a change instead of a snapshot read."""
    return order[_TIME - 1] == f"{RANK_CHANGE:x}"


def is_higher(order: str, than: str) -> bool:
    """Check whether an event has a higher position than another."""
    return order[:20] > than[:20]


def arrival_of(order: str) -> int:
    """Return the place of arrival in an order key."""
    return int(order[EVENT_DIGITS:], 16)


def highest(orders: Iterable[tuple[_Place, str]]) -> dict[_Place, str]:
    """Return the highest order key by place, such as a partition."""
    highest_orders: dict[_Place, str] = {}
    for place, order in orders:
        highest_orders[place] = max(order, highest_orders.get(place, ""))
    return highest_orders


def lowest(orders: Iterable[tuple[_Place, str]]) -> dict[_Place, str]:
    """Return the lowest order key by place."""
    lowest_orders: dict[_Place, str] = {}
    for place, order in orders:
        lowest_orders[place] = min(order, lowest_orders.get(place, order))
    return lowest_orders


def rises(order: str) -> bool:
    """Check whether the position is the commit's, and so rises from change to change.

    Otherwise it is the record's own position, which may fall where transactions overlap.
    """
    return order[4:20] != order[20:36]


@dataclass(frozen=True)
class Marks:
    """High-water marks of a table.

    :param partitions: highest order key applied by ``topic/partition``; None if they cannot be trusted.
    :param high: highest order key applied; None if none was.
    """

    partitions: Mapping[str, str] | None = None
    high: str | None = None

    def first_late(self, lowest: Mapping[str, str]) -> str | None:
        """Return the lowest key, by ``topic/partition``, that is not above its partition's mark, or None."""
        marks = self.partitions or {}
        return min((low for place, low in lowest.items() if place not in marks or low <= marks[place]), default=None)

    def may_hold(self, lowest: Mapping[str, str]) -> bool:
        """Check whether the table may include one of the events or a newer state of its row; see :meth:`first_late`."""
        late = self.first_late(lowest)
        return bool(self.high and late and late <= self.high)


def joined(lists: Iterable[Mapping[str, Sequence[Stretch]]]) -> dict[str, list[Stretch]]:
    """Join lists of stretches by partition."""
    by_partition: dict[str, list[Stretch]] = {}
    for one in lists:
        for partition, stretches in one.items():
            by_partition.setdefault(partition, []).extend(stretches)
    return by_partition


def void_sql(order: str, truncate: str) -> str:
    """Return SQL that is true for an event before a TRUNCATE.

    A snapshot read at an unknown place in the log is below all changes; its time decides.

    :param order: SQL of the event's order key.
    :param truncate: order key of the TRUNCATE.
    """
    placeless = f"startswith({order}, '{truncate[:4]}{0:016x}') AND substr({order}, {_TIME}, 1) = '{RANK_READ:x}'"
    later = f"substr({order}, {_TIME + 1}, 12) > '{truncate[_TIME : _TIME + 12]}'"
    return f"({order} < '{truncate}' AND NOT ({placeless} AND {later}))"
