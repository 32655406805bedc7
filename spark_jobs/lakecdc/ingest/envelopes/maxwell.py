"""Read Maxwell's messages.

Order: the binlog position if it is emitted (``output_binlog_position``), else time, transaction and place in it. The
last row of a transaction has ``commit`` and no ``xoffset``. A row of a bootstrap does not have the time when it was
read: every change is newer.
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
    dotted,
    first,
    integer,
    last_digits,
    member,
    names_of,
    placed,
    text,
    times,
    whole,
)
from lakecdc.model.order import RANK_CHANGE, RANK_READ

_LAST_OF_TRANSACTION = (1 << 20) - 1
_OPS = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}
_NO_ROW_EVENTS = frozenset(
    (
        *("bootstrap-start", "bootstrap-complete", "table-create", "table-alter", "table-drop"),
        *("database-create", "database-alter", "database-drop", "heartbeat"),
    )
)


def read(message: Message, event: Any) -> Iterator[Envelope]:
    if event is None and message.value is None:
        return
    kind = text(event, "type") or ""
    op, row = _OPS.get(kind), as_object(member(event, "data"))
    before = row if op == "d" else as_object(member(event, "old")) if op == "u" else None
    after = None if op == "d" else row
    is_known = op is not None or kind in _NO_ROW_EVENTS
    problem = None if is_known else ("unknown-message", "its type is not a Maxwell type")
    seconds, xid = integer(event, "ts"), integer(event, "xid")
    nth = first(integer(event, "xoffset"), _LAST_OF_TRANSACTION) or 0
    # binlog.000012:4567
    file, _, place = (text(event, "position") or "").rpartition(":")
    logged = first(times(last_digits(file), 1 << 32, whole(place)), seconds, 0) or 0
    yield Envelope(
        op,
        Place(
            0 if op == "r" else placed(logged),
            placed(first(times(xid, _LAST_OF_TRANSACTION + 1, nth), nth)),
            RANK_READ if op == "r" else RANK_CHANGE,
            times(seconds, 1_000_000),
        ),
        dotted(text(event, "database"), text(event, "table")) or (message.topic if op or problem else None),
        before,
        after,
        Keys.of(message),
        key_names=names_of(member(event, "primary_key_columns")),
        problem=problem,
    )
