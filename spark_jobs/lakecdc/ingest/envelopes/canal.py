"""Canal's flat messages: many rows per message, all values as text, types in ``mysqlType``.

They have no binlog position. Order: ``es`` (the binlog's time), then ``id`` (the batch), then the row in the message. A
row of a snapshot (``INIT``) does not have the time when it was read: every change is newer. A TRUNCATE arrives as DDL.
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

#: bits of the row number in a message; Canal's batches are far smaller
ROWS_BITS = 20
_OPS = {"INSERT": "c", "INIT": "r", "UPDATE": "u", "DELETE": "d"}
_DDL = frozenset(
    (
        *("CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "GTID"),
        *("XACOMMIT", "XAROLLBACK", "MHEARTBEAT"),
    )
)
_NO_ROWS = ("unknown-message", "it has no rows in data")
_TRUNCATE = re.compile(r"\s*truncate\b", re.IGNORECASE)


def read(message: Message, event: Any) -> Iterator[Envelope]:
    if event is None and message.value is None:
        return
    kind = (text(event, "type") or "").upper()
    rows, old = (value if isinstance(value, list) else [] for value in (member(event, "data"), member(event, "old")))
    table, keys, batch = dotted(text(event, "database"), text(event, "table")), Keys.of(message), integer(event, "id")
    time = first(integer(event, "es"), integer(event, "ts"), 0) or 0
    rank, position = (RANK_READ, 0) if kind == "INIT" else (RANK_CHANGE, placed(time))

    def envelope(op: str | None, nth: int = 0, **rest: Any) -> Envelope:
        place = Place(position, placed(first(times(batch, 1 << ROWS_BITS, nth), nth)), rank, times(time, 1000))
        named = table or (message.topic if op or rest.get("problem") else None)
        return Envelope(op, place, named, keys=keys, **rest)

    if kind == "TRUNCATE" or _TRUNCATE.match(text(event, "sql") or ""):
        yield envelope("t")
    elif kind not in _OPS:
        is_known = text(event, "isDdl") == "true" or kind in _DDL
        yield envelope(None, problem=None if is_known else ("unknown-message", "its type is not a Canal type"))
    elif not rows:
        yield envelope(None, problem=_NO_ROWS)
    else:
        shared = {"schema": member(event, "mysqlType"), "key_names": names_of(member(event, "pkNames"))}
        for nth, row in enumerate(rows):
            image, problem = as_object(row), _problem(row, shared["schema"])
            was = as_object(old[nth]) if nth < len(old) and kind == "UPDATE" else None
            images = {"before": image} if kind == "DELETE" else {"before": was, "after": image}
            yield envelope(None if problem else _OPS[kind], nth, **images, **shared, problem=problem)


def _problem(row: Any, types: Any) -> tuple[str, str] | None:
    if row is None:
        return _NO_ROWS
    if isinstance(row, dict) and isinstance(types, dict) and not row.keys() <= types.keys():
        return "unknown-type", "mysqlType lacks a column of the row"
    return None
