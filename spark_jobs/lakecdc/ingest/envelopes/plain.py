"""Read JSON objects that are rows, flat or nested: each is the state of its key; a null value deletes it.

In an append-only table, each is a separate row.

Order: ``order_by`` of the source names a member that increases with every change (a version, a time), else arrival
decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakecdc.ingest.envelopes.json_values import Object, UnreadableError
from lakecdc.ingest.envelopes.message import (
    Envelope,
    Keys,
    Message,
    Place,
    as_object,
    first,
    instant,
    integer,
    text,
)

# with the sign inverted, negative numbers sort below positive ones
_SIGN, _BITS = 1 << 63, (1 << 64) - 1


def read(order_by: str | None, only_added: bool, message: Message, value: Any) -> Iterator[Envelope]:
    """Read a row, see :data:`lakecdc.ingest.envelopes.message.Rows`."""
    keys = Keys.of(message)
    if value is None:
        yield Envelope("x", Place(time_us=message.timestamp_us), keys=keys)
        return
    row = as_object(value)
    if row is None:
        raise UnreadableError("unknown-message", "the value is not a JSON object")
    place = Place(_position(row, order_by), time_us=message.timestamp_us)
    yield Envelope("c" if only_added else "u", place, message.topic, after=row, keys=keys)


def _position(row: Object, order_by: str | None) -> int:
    if order_by is None:
        return 0
    number = first(integer(row, order_by), instant(text(row, order_by)))
    if number is None:
        raise UnreadableError("no-order", f"{order_by} is not a number or time")
    return (number & _BITS) ^ _SIGN
