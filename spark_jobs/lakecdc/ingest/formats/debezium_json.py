"""Debezium change events in JSON, with or without schemas.

Order (Debezium's connector documentation, "source"): MySQL and MariaDB by binlog file, position and row; Postgres by
commit position and position; Oracle by commit SCN and SCN; SQL Server by commit LSN, change LSN and event serial
number; Db2 by commit LSN and change LSN; other connectors by source time and place of arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.ingest.formats import db2_lsn, debezium_schema, sql_server_lsn
from lakecdc.ingest.formats.envelope import (
    NOT_JSON,
    PARSED,
    Format,
    Reading,
    commit_lsn,
    digits,
    envelope,
    hexadecimal,
    member,
    number,
    text,
    times,
)
from lakecdc.ingest.formats.messages import once
from lakecdc.ingest.order import order_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: members that stand beside each other in a message with its schema
WRAPPED = "try_variant_get({0}, '$.schema', 'variant') IS NOT NULL AND {1} IS NOT NULL"
#: SQL of the key that the row had before, as text: Debezium's header on the insert that a key change ends with
OLD_KEY = "CAST(get(filter(headers, h -> h.key = '__debezium.oldkey'), 0).value AS string)"
_CONNECTOR = text("source.connector", "e")
_BINLOG = f"{_CONNECTOR} IN ('mysql', 'mariadb')"
_COMMIT = text("source.commit_lsn", "e")
_COMMIT_LSN = commit_lsn(text("source.sequence", "e"))
_LSN = number("source.lsn", "e")
# the file's number and the position in it share one 64-bit coordinate
_POSITION = f"""coalesce(
  CASE WHEN {_BINLOG} THEN {times(digits(text("source.file", "e")), 1 << 32, number("source.pos", "e"))} END,
  {_COMMIT_LSN}, {_LSN}, {number("source.commit_scn", "e")},
  {db2_lsn.position(_COMMIT, hexadecimal, _CONNECTOR)}, {sql_server_lsn.position(_COMMIT, hexadecimal)}, 0)"""
_CHANGE = (_COMMIT, text("source.change_lsn", "e"))
_SERIAL = number("source.event_serial_no", "e")
_ORDINAL = f"""coalesce(CASE WHEN {_BINLOG} THEN {number("source.row", "e")} END,
  {_LSN}, {number("source.scn", "e")}, {db2_lsn.ordinal(*_CHANGE, hexadecimal, _CONNECTOR)},
  {sql_server_lsn.ordinal(*_CHANGE, _SERIAL, hexadecimal)}, 0)"""
# a negative number is no place in a log, and would lie above all of them
_PLACE = (f"greatest({_POSITION}, 0L)", f"greatest({_ORDINAL}, 0L)")
_SNAPSHOT = f"coalesce({text('source.snapshot', 'e')}, 'false')"
_OP = text("op", "e")
_TIME = f"coalesce({number('source.ts_us', 'e')}, {times(number('source.ts_ms', 'e'), 1000)})"
_NO_ROW_EVENT = f"""({_OP} = 'm' OR {member("ddl", "e")} IS NOT NULL OR {text("status", "e")} IN ('BEGIN', 'END')
  OR ({number("ts_ms", "e")} IS NOT NULL AND {member("source", "e")} IS NULL AND {_OP} IS NULL))"""


def envelopes(messages: DataFrame, reading: Reading) -> DataFrame:
    """See :class:`lakecdc.ingest.formats.envelope.Format`."""
    parsed = messages.selectExpr(*PARSED, f"try_parse_json({OLD_KEY}) AS moved")
    parsed = parsed.selectExpr(
        "*",
        f"{once(unwrapped('v'))} AS e",
        f"{unwrapped('k')} AS own_key",
        f"{unwrapped('moved')} AS old_key",
        f"CAST({member('schema')} AS string) AS row_schema",
        f"CASE WHEN v IS NULL THEN {NOT_JSON} END AS unreadable",
    )
    return enveloped(parsed, reading)


def enveloped(parsed: DataFrame, reading: Reading) -> DataFrame:
    """Envelopes out of Debezium's structure, however it was encoded.

    :param parsed: a message frame with ``e``, variant of the value; ``own_key`` and ``old_key``, variants of the
        message's key and of the one before; ``row_schema``, text; ``unreadable``, ``rule: reason`` of a value that
        cannot be read, or null.
    """
    gone = "value IS NULL OR is_variant_null(e)"
    rank = f"CASE WHEN {_OP} = 'r' OR {_SNAPSHOT} NOT IN ('false', 'incremental') THEN 0 ELSE 8 END"
    return envelope(
        parsed,
        op=f"CASE WHEN {gone} THEN 'x' WHEN {_OP} IN ('r', 'c', 'u', 'd', 't') THEN {_OP} END",
        problem=f"""CASE WHEN {gone} THEN NULL WHEN unreadable IS NOT NULL THEN unreadable
          WHEN coalesce({_OP} IN ('r', 'c', 'u', 'd', 't'), false) OR coalesce({_NO_ROW_EVENT}, false) THEN NULL
          ELSE 'unknown-message: it has no op that Debezium knows' END""",
        source_table=f"concat_ws('.', coalesce({text('source.schema', 'e')}, {text('source.db', 'e')}), "
        f"{text('source.table', 'e')})",
        before=member("before", "e"),
        after=member("after", "e"),
        record_key="own_key",
        old_key="old_key",
        schema="row_schema",
        order=order_sql(str(reading.epoch), *_PLACE, rank, f"coalesce({_TIME}, 0) DIV 1000", "arrival"),
        time_us=_TIME,
    )


def unwrapped(of: str) -> str:
    """SQL of the payload of a message that carries its schema, else of the message itself.

    :param of: name of a variant column.
    """
    payload = member("payload", of)
    return f"CASE WHEN {WRAPPED.format(of, payload)} THEN {payload} ELSE {of} END"


FORMAT = Format(envelopes, debezium_schema.fields, placeholders=True, tombstones=True, row_keys=True)
