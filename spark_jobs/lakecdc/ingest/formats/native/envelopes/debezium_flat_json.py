"""Flattened Debezium events; the rules are those of ``formats.debezium_flat_json``."""

from __future__ import annotations

from collections.abc import Sequence

from lakecdc.ingest.formats import db2_lsn, sql_server_lsn
from lakecdc.ingest.formats.debezium_flat_json import PREFIX
from lakecdc.ingest.formats.native.envelopes.envelope import (
    Envelope,
    commit_lsn,
    digits,
    hexadecimal,
    no_whole,
    times,
    whole,
)

_NUMBERS = ("lsn", "pos", "row", "ts_ms", "event_serial_no")
_TEXTS = ("file", "schema", "db", "table", "sequence", "commit_lsn", "change_lsn")


def _either(name: str) -> str:
    """SQL of a member that ``add.fields`` names with or without ``source.``."""
    return f'coalesce("__{name}", "__source_{name}")'


_LSN = whole(_either("lsn"))
_COMMIT_LSN = commit_lsn(_either("sequence"))
_BINLOG = times(digits(_either("file")), 1 << 32, whole(_either("pos")))
_COMMIT = _either("commit_lsn")
_CHANGE = (_COMMIT, _either("change_lsn"))
_SERIAL = whole(_either("event_serial_no"))


def _kind(mine: str) -> str:
    op = "CASE WHEN __deleted = 'true' THEN 'd' ELSE coalesce(__op, 'u') END"
    return f"""CASE WHEN gone THEN 'x' WHEN a IS NULL THEN 'odd'
      WHEN {op} IN ('r', 'c', 'u', 'd') THEN CASE WHEN {mine} THEN {op} END ELSE 'odd' END"""


def _key(column: str, text: str) -> str:
    of_delete = f"coalesce({text}, record_key.{column})"
    return f"CASE kind WHEN 'x' THEN record_key.{column} WHEN 'd' THEN {of_delete} ELSE {text} END"


def _columns(names: Sequence[str]) -> list[str]:
    # beside each other they may be a row with its schema
    wrapped = ("payload",) if {"schema", "payload"} <= {*names} else ()
    return [name for name in names if not name.startswith(PREFIX) and name not in wrapped]


ENVELOPE = Envelope(
    shape=lambda image, key: image,
    image="e",
    pointer="''",
    beside={
        name: name
        for name in (
            *("__op", "__deleted"),
            *(f"{prefix}{name}" for name in (*_NUMBERS, *_TEXTS) for prefix in ("__", "__source_")),
        )
    },
    columns=_columns,
    source_table=f"concat_ws('.', coalesce({_either('schema')}, {_either('db')}), {_either('table')})",
    kind=_kind,
    record_key='decode("key")',
    old_keys=True,
    key=_key,
    placeholders=True,
    position=f"""coalesce({_BINLOG}, {_COMMIT_LSN}, {_LSN},
      {db2_lsn.position(_COMMIT, hexadecimal)}, {sql_server_lsn.position(_COMMIT, hexadecimal)}, 0)""",
    ordinal=f"""coalesce({whole(_either("row"))}, {_LSN},
      {db2_lsn.ordinal(*_CHANGE, hexadecimal)}, {sql_server_lsn.ordinal(*_CHANGE, _SERIAL, hexadecimal)}, 0)""",
    rank="CASE WHEN __op = 'r' THEN 0 ELSE 8 END",
    time_us=times(whole(_either("ts_ms")), 1000),
    odd=(no_whole(*(_either(name) for name in _NUMBERS)),),
)
