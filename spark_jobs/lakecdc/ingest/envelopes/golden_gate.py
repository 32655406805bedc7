"""Read Oracle GoldenGate's JSON: ``op_type`` I, U, D, T, ordered by the trail position ``pos``.

``op_ts`` may decrease while ``pos`` increases, so it is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakecdc.ingest.envelopes.message import (
    Envelope,
    Keys,
    Message,
    Place,
    as_object,
    last_digits,
    member,
    moment_of,
    names_of,
    text,
)

_OPS = {"I": "c", "U": "u", "D": "d", "T": "t"}


def read(message: Message, event: Any) -> Iterator[Envelope]:
    if event is None and message.value is None:
        return
    op = _OPS.get((text(event, "op_type") or "").upper())
    before, after = as_object(member(event, "before")), as_object(member(event, "after")) if op != "d" else None
    problem = None if op else ("unknown-message", "its op_type is not one of I, U, D, T")
    yield Envelope(
        op,
        Place(last_digits(text(event, "pos")) or 0, time_us=moment_of(text(event, "op_ts"))),
        text(event, "table") or message.topic,
        before,
        after,
        Keys.of(message),
        key_names=names_of(member(event, "primary_keys")),
        problem=problem,
    )
