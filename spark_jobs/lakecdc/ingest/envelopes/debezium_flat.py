"""Debezium events flattened by ``ExtractNewRecordState``: the row itself, with ``__`` members about the change.

What the transform has to add for more than arrival order: ``add.fields=op,table,lsn,sequence,source.ts_ms`` for
Postgres, ``op,table,file,pos,row,source.ts_ms`` for MySQL,
``op,table,commit_lsn,change_lsn,event_serial_no,source.ts_ms`` for SQL Server and, without the number, Db2, and
``delete.tombstone.handling.mode=rewrite``. A row without ``__op`` is taken as its state; ``__deleted``
is the text ``true`` or ``false``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakecdc.ingest.envelopes.debezium import commit_lsn, keys, unwrapped
from lakecdc.ingest.envelopes.json_values import UnreadableError
from lakecdc.ingest.envelopes.lsn import Lsn
from lakecdc.ingest.envelopes.message import (
    Envelope,
    Message,
    Place,
    dotted,
    first,
    integer,
    last_digits,
    member,
    placed,
    text,
    times,
)
from lakecdc.model.order import RANK_CHANGE, RANK_READ

#: members of this prefix tell of the change and are not columns
PREFIX = "__"


def read(message: Message, value: Any) -> Iterator[Envelope]:
    """See :data:`lakecdc.ingest.envelopes.message.Rows`."""
    yield _envelope(message, unwrapped(value), member(value, "schema"))


def _envelope(message: Message, event: Any, schema: Any) -> Envelope:
    linked = keys(message)
    if event is None:
        return Envelope("x", keys=linked, schema=schema)
    if not isinstance(event, dict):
        raise UnreadableError("unknown-message", "the value is not a JSON object")
    if text(event, "op") == "m" and text(event, "source", "connector") is not None:
        return Envelope(None, schema=schema)
    told = text(event, "__op") or "u"
    op = "d" if text(event, "__deleted") == "true" else told if told in ("r", "c", "u", "d", "t") else None
    problem = None if op else ("unknown-message", "its __op is not one of Debezium's")
    row = {name: value for name, value in event.items() if not name.startswith(PREFIX)}
    return Envelope(
        op if problem is None else None,
        _place(event, told),
        dotted(_either(event, "schema") or _either(event, "db"), _either(event, "table")) or message.topic,
        before=row if op == "d" else None,
        after=row if op != "d" else None,
        keys=linked,
        schema=schema,
        problem=problem,
    )


def _either(event: Any, name: str) -> str | None:
    """Return a member that ``add.fields`` names with or without ``source.``."""
    found = text(event, f"__{name}")
    return found if found is not None else text(event, f"__source_{name}")


def _number(event: Any, name: str) -> int | None:
    return first(integer(event, f"__{name}"), integer(event, f"__source_{name}"))


def _place(event: Any, op: str) -> Place:
    lsn = Lsn(_either(event, "commit_lsn"), _either(event, "change_lsn"), _number(event, "event_serial_no"))
    binlog = times(last_digits(_either(event, "file")), 1 << 32, _number(event, "pos"))
    position = first(binlog, commit_lsn(_either(event, "sequence")), _number(event, "lsn"), lsn.position)
    ordinal = first(_number(event, "row"), _number(event, "lsn"), lsn.ordinal)
    rank = RANK_READ if op == "r" else RANK_CHANGE
    return Place(placed(position), placed(ordinal), rank, times(_number(event, "ts_ms"), 1000))
