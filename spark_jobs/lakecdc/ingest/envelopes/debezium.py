"""Debezium's change events in JSON, with or without schemas.

Order (Debezium's connector documentation, "source"): MySQL and MariaDB by binlog file, position and row; Postgres by
commit position and position; Oracle by commit SCN and SCN; SQL Server by commit LSN, change LSN and event serial
number; Db2 by commit LSN and change LSN; other connectors by source time and place of arrival.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lakecdc.ingest.envelopes.lsn import coordinates
from lakecdc.ingest.envelopes.message import (
    Envelope,
    Keys,
    Message,
    Place,
    as_integer,
    as_object,
    as_text,
    dotted,
    first,
    integer,
    last_digits,
    member,
    placed,
    text,
    times,
    whole,
)
from lakecdc.model.order import RANK_CHANGE, RANK_READ

#: header of the insert that ends a key change: the row's old key
OLD_KEY = "__debezium.oldkey"
ROW_OPS = ("r", "c", "u", "d")
_OPS = (*ROW_OPS, "t")
_NO_SNAPSHOT = (None, "false", "incremental")
#: connectors that read a binlog
BINLOG = ("mysql", "mariadb")
_COMMIT_LSN = re.compile(r'\["([0-9]+)"')


def read(message: Message, value: Any) -> Iterable[Envelope]:
    event, schema, linked = unwrapped(value), member(value, "schema"), keys(message)
    if event is None:
        return (Envelope("x", keys=linked, schema=schema),)
    if type(event) is not dict:
        event = {}
    op, source = as_text(event.get("op")), event.get("source")
    known = op if op in _OPS else None
    problem = None
    if known is None and not _is_no_row_event(event, op):
        problem = "unknown-message", "its op is not a Debezium op"
    table = source_table(source) or (message.topic if known or problem else None)
    before, after = as_object(event.get("before")), as_object(event.get("after"))
    return (Envelope(known, place(source, op), table, before, after, linked, schema, problem=problem),)


def keys(message: Message) -> Keys | None:
    """Return the message's key and the row's old key."""
    old = message.headers.get(OLD_KEY) if message.headers else None
    return None if message.key is None and old is None else Keys(message.key, old, unwrapped)


def unwrapped(value: Any) -> Any:
    """Return the payload of a value with a schema, else the value itself."""
    return value["payload"] if isinstance(value, dict) and "schema" in value and "payload" in value else value


def commit_lsn(sequence: str | None) -> int | None:
    """Return the position of the last commit in Postgres' ``sequence``, ``["24023119","24023128"]``."""
    match = _COMMIT_LSN.match(sequence or "")
    return whole(match[1]) if match else None


def _is_no_row_event(event: Any, op: str | None) -> bool:
    """Check for a logical message, DDL, the bounds of a transaction, or a heartbeat."""
    return (
        op == "m"
        or member(event, "ddl") is not None
        or text(event, "status") in ("BEGIN", "END")
        or (integer(event, "ts_ms") is not None and member(event, "source") is None and op is None)
    )


def source_table(source: Any) -> str:
    """Return the source table of an event, such as ``shop.orders``; empty if it has none."""
    if type(source) is not dict:
        return ""
    schema, table = as_text(source.get("schema")), as_text(source.get("table"))
    return dotted(as_text(source.get("db")) if schema is None else schema, table)


def place(source: Any, op: str | None) -> Place:
    """Return the place of an event in its source's log."""
    if type(source) is not dict:
        return Place(rank=RANK_READ if op == "r" else RANK_CHANGE)
    get = source.get
    connector, lsn, sequence = get("connector"), as_integer(get("lsn")), get("sequence")
    position, ordinal = None if sequence is None else commit_lsn(as_text(sequence)), lsn
    if connector in BINLOG:
        # the file's number and the position share one 64-bit coordinate
        binlog = times(last_digits(as_text(get("file"))), 1 << 32, as_integer(get("pos")))
        position, ordinal = first(binlog, position), first(as_integer(get("row")), lsn)
    if lsn is None and (position is None or ordinal is None):
        change = as_text(get("change_lsn")), as_integer(get("event_serial_no"))
        of_commit, of_change = coordinates(as_text(get("commit_lsn")), *change, as_text(connector))
        position = first(position, as_integer(get("commit_scn")), of_commit)
        ordinal = first(ordinal, as_integer(get("scn")), of_change)
    time_us = as_integer(get("ts_us"))
    if time_us is None:
        time_us = times(as_integer(get("ts_ms")), 1000)
    rank = RANK_READ if op == "r" or is_snapshot(get("snapshot")) else RANK_CHANGE
    return Place(placed(lsn if position is None else position), placed(ordinal), rank, time_us)


def is_snapshot(snapshot: Any) -> bool:
    """Check whether ``snapshot`` marks a row of a snapshot; rows of incremental snapshots count as changes."""
    return snapshot not in _NO_SNAPSHOT and as_text(snapshot) not in _NO_SNAPSHOT
