"""Kinds of events in the log, which of them cannot be read, and the statement that one carries."""

from __future__ import annotations

from lakecdc.ingest.sources.mysql import gtid

QUERY, ROTATE, FORMAT, XID, LOAD_QUERY, TABLE_MAP, XA_PREPARE = 2, 4, 15, 16, 18, 19, 38
#: kinds of row events by event type, and whether extra data stands before the columns
ROWS = {
    **{23: ("c", False), 24: ("u", False), 25: ("d", False)},
    **{30: ("c", True), 31: ("u", True), 32: ("d", True)},
}
GTIDS = (gtid.GTID, gtid.ANONYMOUS, gtid.TAGGED, gtid.MARIADB)
_UNREADABLE = {
    39: "partial JSON updates (binlog_row_value_options = PARTIAL_JSON)",
    40: "compressed transactions (binlog_transaction_compression = ON)",
    **dict.fromkeys(range(165, 172), "compressed events (log_bin_compress = ON)"),
    **dict.fromkeys((20, 21, 22), "row events of a version before MySQL 5.1.18"),
    26: "a note that the source lost events (LOST_EVENTS)",
}
#: what carries no rows: the values that statements use, files for LOAD DATA, notes, heartbeats, lists of identifiers
_WITHOUT_ROWS = {3, 5, 9, 11, 13, 14, 17, 27, 28, 29, 35, 36, 37, 41, 160, 161, 163, 164}
_READ = {QUERY, ROTATE, FORMAT, XID, LOAD_QUERY, TABLE_MAP, XA_PREPARE, *ROWS, *GTIDS}
_IGNORABLE = 0x80


def unreadable(kind: int, flags: int) -> str | None:
    """Tell what an event holds that could be rows and cannot be read; None if it can be read or holds none."""
    if kind in _READ or kind in _WITHOUT_ROWS or (kind not in _UNREADABLE and flags & _IGNORABLE):
        return None
    return _UNREADABLE.get(kind, f"events of the unknown kind {kind}")


def read_statement(event: bytes, end: int) -> tuple[str, bytes, int]:
    """Read the default database of a logged statement, the statement, and its session's mode as bits."""
    at = 45 if event[4] == LOAD_QUERY else 32
    schema_size, variables = event[27], event[at : at + int.from_bytes(event[30:32], "little")]
    at += len(variables)
    return event[at : at + schema_size].decode(), event[at + schema_size + 1 : end], _sql_mode(variables)


def _sql_mode(variables: bytes) -> int:
    """Return the session's mode, from the variables of its statement: its flags come first, the mode behind them."""
    at = 5 if variables[:1] == b"\0" else 0
    return int.from_bytes(variables[at + 1 : at + 9], "little") if variables[at : at + 1] == b"\1" else 0
