"""Debezium's change events in JSON, with or without schemas.

Order (Debezium's connector documentation, "source"): MySQL and MariaDB by binlog file, position and row; Postgres by
commit position and position; Oracle by commit SCN and SCN; SQL Server by commit LSN, change LSN and event serial
number; Db2 by commit LSN and change LSN; other connectors by source time and place of arrival.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lakecdc.ingest.envelopes.lsn import Lsn
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
    placed,
    refuse_bad_names,
    text,
    times,
    whole,
)
from lakecdc.ingest.order import RANK_CHANGE, RANK_READ

#: header of the insert that a key change ends with: the key that the row had before
OLD_KEY = "__debezium.oldkey"
ROW_OPS = ("r", "c", "u", "d")
_OPS = (*ROW_OPS, "t")
_COMMIT_LSN = re.compile(r'\["([0-9]+)"')


def read(message: Message, value: Any) -> Iterator[Envelope]:
    """See :data:`lakecdc.ingest.envelopes.message.Rows`."""
    yield envelope(message, unwrapped(value), member(value, "schema"))


def envelope(message: Message, event: Any, schema: Any) -> Envelope:
    """Read Debezium's structure, however it was encoded.

    :param event: the parsed payload; None for a tombstone.
    """
    linked = keys(message)
    if event is None:
        return Envelope("x", keys=linked, schema=schema)
    op, before, after = text(event, "op"), as_object(member(event, "before")), as_object(member(event, "after"))
    known = op if op in _OPS else None
    problem = None
    if known is None and not _is_no_row_event(event, op):
        problem = "unknown-message", "its op is not one of Debezium's"
    problem = problem or refuse_bad_names(before, after)
    source = member(event, "source")
    told = dotted(text(source, "schema") or text(source, "db"), text(source, "table"))
    return Envelope(
        known if problem is None else None,
        _place(source, op),
        told or (message.topic if known or problem else None),
        before,
        after,
        linked,
        schema,
        problem=problem,
    )


def keys(message: Message) -> Keys | None:
    """Return the message's key, and the key that the row had before."""
    old = message.headers.get(OLD_KEY) if message.headers else None
    return None if message.key is None and old is None else Keys(message.key, old, unwrapped)


def unwrapped(value: Any) -> Any:
    """Return the payload of a value that carries its schema, else the value itself."""
    return value["payload"] if isinstance(value, dict) and value.keys() >= {"schema", "payload"} else value


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


def _place(source: Any, op: str | None) -> Place:
    connector, lsn = text(source, "connector"), integer(source, "lsn")
    position, ordinal = commit_lsn(text(source, "sequence")), lsn
    if connector in ("mysql", "mariadb"):
        # the file's number and the position in it share one 64-bit coordinate
        binlog = times(last_digits(text(source, "file")), 1 << 32, integer(source, "pos"))
        position, ordinal = first(binlog, position), first(integer(source, "row"), lsn)
    if lsn is None:
        numbers = Lsn(
            text(source, "commit_lsn"), text(source, "change_lsn"), integer(source, "event_serial_no"), connector
        )
        position = first(position, integer(source, "commit_scn"), numbers.position)
        ordinal = first(ordinal, integer(source, "scn"), numbers.ordinal)
    position = first(position, lsn)
    is_read = op == "r" or (text(source, "snapshot") or "false") not in ("false", "incremental")
    time_us = first(integer(source, "ts_us"), times(integer(source, "ts_ms"), 1000))
    return Place(placed(position), placed(ordinal), RANK_READ if is_read else RANK_CHANGE, time_us)
