"""Canal's flat messages: many rows per message, all values as text, types in ``mysqlType``.

They carry no binlog position. Order: ``es`` (the binlog's time), then ``id`` (the batch), then the row in the message.
A row of a snapshot (``INIT``) does not tell when it was read: every change is newer. A TRUNCATE arrives as DDL.
"""

from __future__ import annotations

import re
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
    member,
    names_of,
    placed,
    text,
    times,
)
from lakecdc.model.order import RANK_CHANGE, RANK_READ

#: rows of one message that keep their order; Canal cuts its batches far below
ROWS_BITS = 20
_OPS = {"INSERT": "c", "INIT": "r", "UPDATE": "u", "DELETE": "d"}
_DDL = frozenset(
    (
        *("CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "GTID"),
        *("XACOMMIT", "XAROLLBACK", "MHEARTBEAT"),
    )
)
_TRUNCATE = re.compile(r"\s*truncate\b", re.IGNORECASE)


def read(message: Message, event: Any) -> Iterator[Envelope]:
    """See :data:`lakecdc.ingest.envelopes.message.Rows`."""
    if event is None and message.value is None:
        return
    kind = (text(event, "type") or "").upper()
    rows, old = (value if isinstance(value, list) else [] for value in (member(event, "data"), member(event, "old")))
    shared = _Shared(message, event, kind)
    if kind == "TRUNCATE" or _TRUNCATE.match(text(event, "sql") or ""):
        yield shared.envelope("t")
    elif kind not in _OPS:
        is_known = text(event, "isDdl") == "true" or kind in _DDL
        yield shared.envelope(None, problem=None if is_known else ("unknown-message", "its type is not one of Canal's"))
    elif not rows:
        yield shared.envelope(None, problem=("unknown-message", "it has no rows in data"))
    else:
        for nth, row in enumerate(rows):
            yield shared.row(_OPS[kind], nth, row, old[nth] if nth < len(old) else None)


class _Shared:
    """What the rows of one message share."""

    def __init__(self, message: Message, event: Any, kind: str) -> None:
        self._event, self._is_read, self._topic = event, kind == "INIT", message.topic
        self._table = dotted(text(event, "database"), text(event, "table"))
        self._keys = Keys.of(message)
        self._time = first(integer(event, "es"), integer(event, "ts"), 0) or 0
        self._types = member(event, "mysqlType")

    def envelope(self, op: str | None, nth: int = 0, **rest: Any) -> Envelope:
        """Return the envelope of one row, or of the message itself."""
        ordinal = first(times(integer(self._event, "id"), 1 << ROWS_BITS, nth), nth) or 0
        rank = RANK_READ if self._is_read else RANK_CHANGE
        position = 0 if self._is_read else placed(self._time)
        place = Place(position, placed(ordinal), rank, times(self._time, 1000))
        table = self._table or (self._topic if op or rest.get("problem") else None)
        return Envelope(op, place, table, keys=self._keys, **rest)

    def row(self, op: str, nth: int, row: Any, old: Any) -> Envelope:
        """Return the envelope of one row."""
        image = as_object(row)
        before = image if op == "d" else as_object(old) if op == "u" else None
        after = None if op == "d" else image
        problem = self._problem(row)
        return self.envelope(
            op if problem is None else None,
            nth,
            before=before,
            after=after,
            schema=self._types,
            key_names=names_of(member(self._event, "pkNames")),
            problem=problem,
        )

    def _problem(self, row: Any) -> tuple[str, str] | None:
        if row is None:
            return "unknown-message", "it has no rows in data"
        if isinstance(row, dict) and isinstance(self._types, dict) and not row.keys() <= self._types.keys():
            return "unknown-type", "mysqlType lacks a column of the row"
        return None
