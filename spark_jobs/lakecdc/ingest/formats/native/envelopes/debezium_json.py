"""Debezium's envelopes; the rules are those of ``formats.debezium_json``."""

from __future__ import annotations

from lakecdc.ingest.formats import db2_lsn, sql_server_lsn
from lakecdc.ingest.formats.native.envelopes.envelope import (
    Envelope,
    commit_lsn,
    digits,
    hexadecimal,
    times,
)

_SOURCE = {
    **dict.fromkeys(("connector", "db", "schema", "table", "snapshot", "sequence", "file"), "VARCHAR"),
    **dict.fromkeys(("lsn", "commit_scn", "scn", "pos", "row", "ts_ms", "ts_us", "event_serial_no"), "BIGINT"),
    **dict.fromkeys(("commit_lsn", "change_lsn"), "VARCHAR"),
}
_ENVELOPE = {**dict.fromkeys(("op", "payload", "ddl", "status"), "VARCHAR"), "ts_ms": "BIGINT"}
_BINLOG = "coalesce(s.connector IN ('mysql', 'mariadb'), false)"
_FILE = digits("s.file")
_COMMIT = commit_lsn("s.sequence")
_SNAPSHOT = "coalesce(s.snapshot, 'false') NOT IN ('false', 'incremental')"
_HEARTBEAT = "op IS NULL AND s IS NULL AND ts_ms IS NOT NULL"


_CHANGE = ("s.commit_lsn", "s.change_lsn")
_LSN = f"""{db2_lsn.position("s.commit_lsn", hexadecimal, "s.connector")},
  {sql_server_lsn.position("s.commit_lsn", hexadecimal)}"""
_WITHIN = f"""{db2_lsn.ordinal(*_CHANGE, hexadecimal, "s.connector")},
  {sql_server_lsn.ordinal(*_CHANGE, "s.event_serial_no", hexadecimal)}"""


def _kind(mine: str) -> str:
    return f"""CASE WHEN gone THEN 'x' WHEN payload IS NOT NULL THEN 'odd'
      WHEN op IN ('r', 'c', 'u', 'd') THEN CASE WHEN {mine} THEN op END
      WHEN op = 't' THEN CASE WHEN {mine} THEN 'odd' END
      WHEN op = 'm' OR ddl IS NOT NULL OR status IN ('BEGIN', 'END') OR ({_HEARTBEAT}) THEN NULL
      ELSE 'odd' END"""


def _key(column: str, text: str) -> str:
    # a delete's `before` may be absent except for the record's key
    of_delete = f"coalesce(b.{column}, record_key.{column})"
    return f"CASE kind WHEN 'x' THEN record_key.{column} WHEN 'd' THEN {of_delete} ELSE {text} END"


ENVELOPE = Envelope(
    shape=lambda image, key: {**_ENVELOPE, "before": key, "source": _SOURCE, "after": image},
    members={**{name: f"e.{name}" for name in _ENVELOPE}, "s": "e.source"},
    image="e.after",
    pointer="'/after'",
    before="e.before",
    source_table='concat_ws(\'.\', coalesce(s."schema", s.db), s."table")',
    kind=_kind,
    record_key='decode("key")',
    old_keys=True,
    key=_key,
    placeholders=True,
    position=f"coalesce(CASE WHEN {_BINLOG} THEN {times(_FILE, 1 << 32, 's.pos')} END, {_COMMIT}, s.lsn, s.commit_scn, "
    f"{_LSN}, 0)",
    ordinal=f'coalesce(CASE WHEN {_BINLOG} THEN s."row" END, s.lsn, s.scn, {_WITHIN}, 0)',
    rank=f"CASE WHEN op = 'r' OR {_SNAPSHOT} THEN 0 ELSE 8 END",
    time_us=f"coalesce(s.ts_us, {times('s.ts_ms', 1000)})",
    schemas=True,
    odd=(("op = 'd' AND a IS NOT NULL", "a delete with a row after it"),),
)
