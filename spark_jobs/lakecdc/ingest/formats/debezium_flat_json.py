"""Debezium events flattened by ``ExtractNewRecordState``: the row itself, with ``__`` members about the change.

What the transform has to add for more than arrival order: ``add.fields=op,table,lsn,sequence,source.ts_ms`` for
Postgres, ``op,table,file,pos,row,source.ts_ms`` for MySQL,
``op,table,commit_lsn,change_lsn,event_serial_no,source.ts_ms`` for SQL Server and, without the number, Db2, and
``delete.tombstone.handling.mode=rewrite``. A row without ``__op`` is taken as its state; ``__deleted``
is the text ``true`` or ``false``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakecdc.ingest.formats import db2_lsn, debezium_schema, sql_server_lsn
from lakecdc.ingest.formats.debezium_json import OLD_KEY, unwrapped
from lakecdc.ingest.formats.envelope import (
    NOT_JSON,
    PARSED,
    Format,
    Reading,
    commit_lsn,
    digits,
    envelope,
    hexadecimal,
    number,
    text,
    times,
)
from lakecdc.ingest.formats.messages import once
from lakecdc.ingest.formats.values import Field
from lakecdc.ingest.order import order_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: members of this prefix tell of the change and are no columns
PREFIX = "__"
_DELETED = f"{text('__deleted', 'e')} = 'true'"
_OP = f"coalesce({text('__op', 'e')}, 'u')"


def _either(name: str, read: Callable[[str, str], str]) -> str:
    """SQL of a member that ``add.fields`` names with or without ``source.``."""
    return f"coalesce({read(f'__{name}', 'e')}, {read(f'__source_{name}', 'e')})"


_LSN = _either("lsn", number)
_COMMIT_LSN = commit_lsn(_either("sequence", text))
_BINLOG = times(digits(_either("file", text)), 1 << 32, _either("pos", number))
_COMMIT = _either("commit_lsn", text)
_CHANGE = (_COMMIT, _either("change_lsn", text))
_SERIAL = _either("event_serial_no", number)
_POSITION = f"""coalesce({_BINLOG}, {_COMMIT_LSN}, {_LSN},
  {db2_lsn.position(_COMMIT, hexadecimal)}, {sql_server_lsn.position(_COMMIT, hexadecimal)}, 0)"""
_ORDINAL = f"""coalesce({_either("row", number)}, {_LSN},
  {db2_lsn.ordinal(*_CHANGE, hexadecimal)}, {sql_server_lsn.ordinal(*_CHANGE, _SERIAL, hexadecimal)}, 0)"""
# a negative number is no place in a log, and would lie above all of them
_PLACE = (f"greatest({_POSITION}, 0L)", f"greatest({_ORDINAL}, 0L)")
_TIME = times(_either("ts_ms", number), 1000)
_COLUMNS = f"map_filter(CAST(e AS map<string, variant>), (name, value) -> NOT startswith(name, '{PREFIX}'))"


def envelopes(messages: DataFrame, reading: Reading) -> DataFrame:
    """See :class:`lakecdc.ingest.formats.envelope.Format`."""
    parsed = messages.selectExpr(*PARSED, f"try_parse_json({OLD_KEY}) AS moved")
    parsed = parsed.selectExpr(
        "*", f"{once(unwrapped('v'))} AS e", f"{unwrapped('k')} AS own_key", f"{unwrapped('moved')} AS old_key"
    )
    parsed = parsed.selectExpr("*", "schema_of_variant(e) LIKE 'OBJECT%' AS is_object")
    gone = "value IS NULL OR is_variant_null(e)"
    logical = f"({text('op', 'e')} = 'm' AND {text('source.connector', 'e')} IS NOT NULL)"
    op = (
        f"CASE WHEN {logical} THEN NULL WHEN {_DELETED} THEN 'd' WHEN {_OP} IN ('r', 'c', 'u', 'd', 't') THEN {_OP} END"
    )
    row = f"CASE WHEN is_object THEN to_variant_object({_COLUMNS}) END"
    rank = f"CASE WHEN {_OP} = 'r' THEN 0 ELSE 8 END"
    return envelope(
        parsed,
        op=f"CASE WHEN {gone} THEN 'x' ELSE {op} END",
        problem=f"""CASE WHEN {gone} THEN NULL WHEN v IS NULL THEN {NOT_JSON}
          WHEN NOT is_object THEN 'unknown-message: the value is no JSON object'
          WHEN {op} IS NULL AND NOT coalesce({logical}, false)
          THEN 'unknown-message: __op is none that Debezium knows' END""",
        source_table=f"concat_ws('.', coalesce({_either('schema', text)}, {_either('db', text)}), "
        f"{_either('table', text)})",
        before=f"CASE WHEN {op} = 'd' THEN {row} END",
        after=f"CASE WHEN {op} != 'd' THEN {row} END",
        record_key="own_key",
        old_key="old_key",
        schema="CAST(try_variant_get(v, '$.schema', 'variant') AS string)",
        order=order_sql(str(reading.epoch), *_PLACE, rank, f"coalesce({_TIME}, 0) DIV 1000", "arrival"),
        time_us=_TIME,
    )


def fields(schema: str) -> tuple[Field, ...]:
    """The columns of a flattened row."""
    members = [m for m in json.loads(schema).get("fields") or [] if not m["field"].startswith(PREFIX)]
    return tuple(debezium_schema.field(m) for m in members)


FORMAT = Format(envelopes, fields, placeholders=True, tombstones=True, row_keys=True)
