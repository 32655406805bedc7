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
_DECIMALS = ("decimal", "numeric", "dec", "fixed")
_DECIMAL = re.compile(rf"(?:{'|'.join(_DECIMALS)})(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?(?:\s+\w+)*\s*")
# digits of a decimal, and those of them behind the point, in MySQL and MariaDB at most
_MOST_DIGITS, _MOST_PLACES = 65, 38
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
# what else the first word of a type is called in MySQL and MariaDB
_TEXTS = frozenset(
    (
        *("char", "character", "nchar", "varchar", "varcharacter", "nvarchar", "national", "long", "enum", "set"),
        *("text", "tinytext", "mediumtext", "longtext", "blob", "tinyblob", "mediumblob", "longblob"),
        *("binary", "varbinary", "bit", "time", "json", "uuid", "inet4", "inet6", "xmltype", "vector", "serial"),
        *("int1", "int2", "int3", "int4", "int8", "middleint", "float4", "float8"),
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        *("geometrycollection", "geomcollection"),
    )
)
_NAMES = frozenset((*_INTEGERS, *_OTHERS, *_TEXTS))
# a row that has a column of which mysqlType does not tell
_UNTOLD = (
    "size(array_except(map_keys(try_variant_get(row, '$', 'map<string,variant>')), "
    "map_keys(try_variant_get(v, '$.mysqlType', 'map<string,variant>')))) > 0"
)


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
          WHEN {_UNTOLD} THEN 'unknown-type: mysqlType lacks a column of the row'
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


def doubts(schema: str) -> tuple[str, ...]:
    """Columns to which ``mysqlType`` gives a type that MySQL does not have, so that the message has been damaged."""
    types = json.loads(schema)
    return doubted(types) if isinstance(types, dict) else ()


def doubted(types: Mapping[str, str]) -> tuple[str, ...]:
    """The same out of types by column."""
    return tuple(name for name, kind in types.items() if not _is_known(str(kind or "").lower()))


def columns(types: Mapping[str, str]) -> tuple[Field, ...]:
    """Columns of a row.

    :param types: MySQL types by column.
    """
    return tuple(_column(name, str(kind)) for name, kind in types.items())


def _column(name: str, mysql_type: str) -> Field:
    """A column, whose values are numbers of names if its type tells these."""
    listed = re.match(r"(enum|set)\s*\(", mysql_type, re.IGNORECASE)
    names = tuple(name.replace("''", "'") for name in re.findall(r"'([^']*(?:''[^']*)*)'", mysql_type))
    if listed and names:
        return Field(name, "string", listed[1].lower(), names=names)
    return Field(name, sql_type(mysql_type))


def sql_type(mysql_type: str) -> str:
    """The Spark SQL type of a MySQL column type such as ``decimal(10,2) unsigned``."""
    lowered = mysql_type.lower()
    base = _base(lowered)
    unsigned = "unsigned" in lowered
    if base in _DECIMALS:
        precision, scale = _digits(lowered)
        return f"decimal({precision},{scale})" if scale <= precision <= 38 else "string"
    if base == "serial" or (base == "bigint" and unsigned):
        return "decimal(20,0)"
    if base in ("int", "integer") and unsigned:
        return "bigint"
    return _INTEGERS.get(base) or _OTHERS.get(base, "string")


def _is_known(lowered: str) -> bool:
    """Whether MySQL has such a type; of a table that it does not know, Canal tells empty ones."""
    base = _base(lowered)
    if base not in _DECIMALS:
        return not base or base in _NAMES
    precision, scale = _digits(lowered)
    whole = _DECIMAL.fullmatch(lowered) and 0 < precision <= _MOST_DIGITS
    return bool(whole) and scale <= min(precision, _MOST_PLACES)


def _base(lowered: str) -> str:
    return re.split(r"[ (]", lowered, maxsplit=1)[0]


def _digits(lowered: str) -> tuple[int, int]:
    """Digits of a decimal, and those behind the point."""
    found = _DECIMAL.match(lowered)
    return (int(found[1]), int(found[2] or 0)) if found and found[1] else (10, 0)


FORMAT = Format(envelopes, fields, doubts=doubts)
