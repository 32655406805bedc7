"""Canal's flat messages: many rows per message, all values as text, types in ``mysqlType``.

They carry no binlog position. Order: ``es`` (the binlog's time), then ``id`` (the batch), then the row in the message.
A row of a snapshot (``INIT``) does not tell when it was read: every change is newer. A TRUNCATE arrives as DDL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakecdc.ingest.formats.envelope import (
    NOT_JSON,
    PARSED,
    Format,
    Reading,
    envelope,
    member,
    names,
    number,
    text,
    times,
)
from lakecdc.ingest.formats.values import Field
from lakecdc.ingest.order import order_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# rows of one message that keep their order; Canal cuts its batches far below
ROWS_BITS = 20
_TYPE = f"upper({text('type')})"
DDL = (
    *("CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "GTID"),
    *("XACOMMIT", "XAROLLBACK", "MHEARTBEAT"),
)
OPS = "CASE {0} WHEN 'INSERT' THEN 'c' WHEN 'INIT' THEN 'r' WHEN 'UPDATE' THEN 'u' WHEN 'DELETE' THEN 'd' END"
_INTEGERS = {"tinyint": "int", "smallint": "int", "mediumint": "int", "int": "int", "integer": "int", "year": "int"}
_OTHERS = {
    "bigint": "bigint",
    "float": "float",
    "double": "double",
    "real": "double",
    "date": "date",
    "datetime": "timestamp_ntz",
    "timestamp": "timestamp",
    "bool": "boolean",
    "boolean": "boolean",
}


def envelopes(messages: DataFrame, reading: Reading) -> DataFrame:
    """See :class:`lakecdc.ingest.formats.envelope.Format`."""
    parsed = messages.selectExpr(*PARSED)
    rows = "try_variant_get(v, '$.data', 'array<variant>')"
    # a message without rows still has to be judged
    exploded = parsed.selectExpr("*", f"posexplode_outer({rows}) AS (nth, row)")
    exploded = exploded.selectExpr("*", "get(try_variant_get(v, '$.old', 'array<variant>'), nth) AS old")
    op = OPS.format(_TYPE)
    truncate = f"({_TYPE} = 'TRUNCATE' OR regexp_like({text('sql')}, '(?i)^\\\\s*truncate\\\\b'))"
    ordinal = f"coalesce({times(number('id'), 1 << ROWS_BITS, 'coalesce(nth, 0)')}, nth, 0)"
    rank = f"CASE WHEN {_TYPE} = 'INIT' THEN 0 ELSE 8 END"
    es = f"coalesce({number('es')}, {number('ts')}, 0)"
    return envelope(
        exploded,
        op=f"CASE WHEN {truncate} THEN 't' WHEN row IS NOT NULL THEN {op} END",
        problem=f"""CASE WHEN value IS NULL OR {truncate} THEN NULL WHEN v IS NULL THEN {NOT_JSON}
          WHEN {op} IS NOT NULL AND row IS NULL THEN 'unknown-message: it has no rows in data'
          WHEN {op} IS NULL AND NOT coalesce({text("isDdl")} = 'true' OR {_TYPE} IN {DDL}, false)
          THEN 'unknown-message: its type is none that Canal knows' END""",
        source_table=f"concat_ws('.', {text('database')}, {text('table')})",
        before=f"CASE WHEN {op} = 'd' THEN row WHEN {op} = 'u' THEN old END",
        after=f"CASE WHEN {op} != 'd' THEN row END",
        schema=f"CAST(CASE WHEN row IS NOT NULL THEN {member('mysqlType')} END AS string)",
        key_names=names("pkNames"),
        order=order_sql(
            str(reading.epoch), f"CASE WHEN {_TYPE} = 'INIT' THEN 0 ELSE {es} END", ordinal, rank, es, "arrival"
        ),
        time_us=times(es, 1000),
    )


def fields(schema: str) -> tuple[Field, ...]:
    """Columns out of ``mysqlType``.

    :param schema: JSON object of MySQL types by column.
    """
    types = json.loads(schema)
    return columns(types) if isinstance(types, dict) else ()


def columns(types: Mapping[str, str]) -> tuple[Field, ...]:
    """Columns of a row.

    :param types: MySQL types by column.
    """
    return tuple(_column(name, str(kind)) for name, kind in types.items())


def _column(name: str, mysql_type: str) -> Field:
    """A column, whose values are numbers of names if its type tells these."""
    listed = re.match(r"(enum|set)\s*\(", mysql_type, re.IGNORECASE)
    names = tuple(found.replace("''", "'") for found in re.findall(r"'((?:[^']|'')*)'", mysql_type)) if listed else ()
    if listed and names:
        return Field(name, "string", listed[1].lower(), names=names)
    return Field(name, sql_type(mysql_type))


def sql_type(mysql_type: str) -> str:
    """The Spark SQL type of a MySQL column type such as ``decimal(10,2) unsigned``."""
    lowered = mysql_type.lower()
    base = re.split(r"[ (]", lowered, maxsplit=1)[0]
    unsigned = "unsigned" in lowered
    if base in ("decimal", "numeric", "dec", "fixed"):
        digits = re.search(r"\((\d+)(?:\s*,\s*(\d+))?\)", lowered)
        precision, scale = (int(digits[1]), int(digits[2] or 0)) if digits else (10, 0)
        return f"decimal({precision},{scale})" if precision <= 38 else "string"
    if base == "serial" or (base == "bigint" and unsigned):
        return "decimal(20,0)"
    if base in ("int", "integer") and unsigned:
        return "bigint"
    return _INTEGERS.get(base) or _OTHERS.get(base, "string")


FORMAT = Format(envelopes, fields)
