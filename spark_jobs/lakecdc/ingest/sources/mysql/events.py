"""Kinds of log events, and the statement or global transaction identifier in an event.

Layouts of identifiers: MySQL's classes ``Gtid_event`` and ``Gtid_log_event`` (``mysql/serialization``), MariaDB's
"GTID_EVENT".
"""

from __future__ import annotations

import struct
from uuid import UUID

QUERY, ROTATE, FORMAT, XID, LOAD_QUERY, TABLE_MAP, XA_PREPARE = 2, 4, 15, 16, 18, 19, 38
GTID, ANONYMOUS, TAGGED, MARIADB = GTIDS = 33, 34, 42, 162
#: fields of a tagged identifier, in this order
_FLAGS, _UUID, _NUMBER, _TAG = range(4)
#: kinds of row events by event type, and whether extra data precedes the columns
ROWS = {
    **{23: ("c", False), 24: ("u", False), 25: ("d", False)},
    **{30: ("c", True), 31: ("u", True), 32: ("d", True)},
}
_UNREADABLE = {
    39: "partial JSON updates (binlog_row_value_options = PARTIAL_JSON)",
    40: "compressed transactions (binlog_transaction_compression = ON)",
    **dict.fromkeys(range(165, 172), "compressed events (log_bin_compress = ON)"),
    **dict.fromkeys((20, 21, 22), "row events of a version before MySQL 5.1.18"),
    26: "a note that the source has lost events (LOST_EVENTS)",
}
#: events without rows: values used by statements, files for LOAD DATA, notes, heartbeats, lists of identifiers
_WITHOUT_ROWS = {3, 5, 9, 11, 13, 14, 17, 27, 28, 29, 35, 36, 37, 41, 160, 161, 163, 164}
_READ = {QUERY, ROTATE, FORMAT, XID, LOAD_QUERY, TABLE_MAP, XA_PREPARE, *ROWS, *GTIDS}
_IGNORABLE = 0x80


def unreadable(kind: int, flags: int) -> str | None:
    """Return the kind of an unreadable event that may have rows; None if it is readable or has none."""
    if kind in _READ or kind in _WITHOUT_ROWS or (kind not in _UNREADABLE and flags & _IGNORABLE):
        return None
    return _UNREADABLE.get(kind, f"events of the unknown kind {kind}")


def read_statement(event: bytes, end: int) -> tuple[str, bytes, int]:
    """Return the default database of a logged statement, the statement, and its session's mode as bits."""
    at = 45 if event[4] == LOAD_QUERY else 32
    schema_size, variables = event[27], event[at : at + int.from_bytes(event[30:32], "little")]
    at += len(variables)
    # flags may precede the mode
    place = 5 if variables[:1] == b"\0" else 0
    has_mode = variables[place : place + 1] == b"\1"
    mode = int.from_bytes(variables[place + 1 : place + 9], "little") if has_mode else 0
    return event[at : at + schema_size].decode(), event[at + schema_size + 1 : end], mode


def gtid_of(event: bytes, kind: int, server: int) -> str:
    """Return the identifier of the transaction that an event begins; empty if it has none.

    :param event: with its header.
    :param server: number of the server that wrote the event.
    """
    if kind == MARIADB:
        sequence, domain = struct.unpack_from("<QI", event, 19)
        return f"{domain}-{server}-{sequence}"
    if kind == GTID:
        return f"{UUID(bytes=event[20:36])}:{int.from_bytes(event[36:44], 'little')}"
    return _tagged(event) if kind == TAGGED else ""


def _tagged(event: bytes) -> str:
    at = 19
    # version, size, and the last field that a reader must know
    for _ in range(3):
        _value, at = _integer(event, at)
    source, number, tag = b"", 0, ""
    while not tag:
        field, at = _integer(event, at)
        value, at = _integer(event, at)
        if field == _UUID:
            octets = [value]
            for _ in range(15):
                value, at = _integer(event, at)
                octets.append(value)
            source = bytes(octets)
        elif field == _NUMBER:
            # the lowest bit is the sign
            number = value >> 1
        elif field == _TAG:
            tag, at = event[at : at + value].decode(), at + value
    return f"{UUID(bytes=source)}:{tag}:{number}"


def _integer(event: bytes, at: int) -> tuple[int, int]:
    """Return an integer prefixed by as many set bits as it has further bytes, and its end."""
    first = event[at]
    further = (first ^ (first + 1)).bit_length() - 1
    end = at + 1 + further
    value = int.from_bytes(event[at:end], "little")
    return value >> min(further + 1, 8), end


def merged_gtid(before: str, last: str) -> str:
    """Add a transaction to the last identifiers read, one per replication domain.

    :param before: the identifiers before it.
    :param last: the transaction's identifier, or the last of several; empty if there was none.
    """
    if not last or ":" in last:
        return last or before
    domains = {part.split("-")[0]: part for part in filter(None, (*before.split(","), *last.split(",")))}
    return ",".join(domains.values())
