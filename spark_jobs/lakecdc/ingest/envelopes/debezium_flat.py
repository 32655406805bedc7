"""Debezium events flattened by ``ExtractNewRecordState``: the row itself, with ``__`` members about the change.

Required options of the transform for more than arrival order: ``add.fields=op,table,lsn,sequence,source.ts_ms`` for
Postgres, ``op,table,file,pos,row,source.ts_ms`` for MySQL,
``op,table,commit_lsn,change_lsn,event_serial_no,source.ts_ms`` for SQL Server and, without the number, Db2, and
``delete.tombstone.handling.mode=rewrite``. A row without ``__op`` is the row's state; ``__deleted`` is the text
``true`` or ``false``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakecdc.ingest.envelopes.debezium import keys, place, unwrapped
from lakecdc.ingest.envelopes.json_values import Object, UnreadableError
from lakecdc.ingest.envelopes.message import Envelope, Message, as_text, dotted, member, text

#: members with this prefix describe the change and are not columns
PREFIX = "__"
# members of Debezium's source that define an event's place, with their names from ``add.fields``
_PLACED = {
    name: (f"__{name}", f"__source_{name}")
    for name in (
        *("lsn", "sequence", "file", "pos", "row", "commit_lsn", "change_lsn", "event_serial_no", "ts_ms"),
        *("schema", "db", "table"),
    )
}


def read(message: Message, value: Any) -> Iterator[Envelope]:
    event, schema, linked = unwrapped(value), member(value, "schema"), keys(message)
    if event is None:
        yield Envelope("x", keys=linked, schema=schema)
        return
    if not isinstance(event, dict):
        raise UnreadableError("unknown-message", "the value is not a JSON object")
    if text(event, "op") == "m" and text(event, "source", "connector") is not None:
        yield Envelope(None, schema=schema)
        return
    code = as_text(event.get("__op")) or "u"
    op = "d" if as_text(event.get("__deleted")) == "true" else code if code in ("r", "c", "u", "d", "t") else None
    row = {name: value for name, value in event.items() if not name.startswith(PREFIX)}
    source = _source(event)
    schema_name, table = (as_text(source.get(name)) for name in ("schema", "table"))
    yield Envelope(
        op,
        place(source, code),
        dotted(schema_name or as_text(source.get("db")), table) or message.topic,
        before=row if op == "d" else None,
        after=row if op != "d" else None,
        keys=linked,
        schema=schema,
        problem=None if op else ("unknown-message", "its __op is not a Debezium op"),
    )


def _source(event: Object) -> Object:
    """Return the members of Debezium's source; a binlog counts for any connector, which is not in the row."""
    source: Object = {"connector": "mysql"}
    for name, (own, prefixed) in _PLACED.items():
        value = event.get(own)
        if value is None:
            value = event.get(prefixed)
        if value is not None:
            source[name] = value
    return source
