"""Columns from ``mysqlType``, the types in Canal's flat messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from lakecdc.ingest.formats.values import Field

_DECIMALS = ("decimal", "numeric", "dec", "fixed")
_DECIMAL = re.compile(rf"(?:{'|'.join(_DECIMALS)})(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?(?:\s+\w+)*\s*")
# most digits of a decimal, and most digits after the point, in MySQL and MariaDB
_MOST_DIGITS, _MOST_PLACES = 65, 38
_SQL_TYPES = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "integer", "year"), "int"),
    "bigint": "bigint",
    "float": "float",
    **dict.fromkeys(("double", "real"), "double"),
    "date": "date",
    "datetime": "timestamp_ntz",
    "timestamp": "timestamp",
    **dict.fromkeys(("bool", "boolean"), "boolean"),
}
# other first words of types in MySQL and MariaDB
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
_NAMES = frozenset((*_SQL_TYPES, *_TEXTS))


def fields(schema: str) -> tuple[Field, ...]:
    """Return the columns of ``mysqlType``, a JSON object of MySQL types by column."""
    return tuple(_column(name, str(kind)) for name, kind in _types(schema).items())


def doubts(schema: str) -> tuple[str, ...]:
    """Return the columns with a type in ``mysqlType`` that MySQL lacks: the message was damaged."""
    return tuple(name for name, kind in _types(schema).items() if not _is_known(str(kind or "").lower()))


def _types(schema: str) -> Mapping[str, Any]:
    types = json.loads(schema)
    return types if isinstance(types, dict) else {}


def _column(name: str, mysql_type: str) -> Field:
    """Return a column; its values are numbers of names if its type lists names."""
    listed = re.match(r"(enum|set)\s*\(", mysql_type, re.IGNORECASE)
    names = tuple(name.replace("''", "'") for name in re.findall(r"'([^']*(?:''[^']*)*)'", mysql_type))
    if listed and names:
        return Field(name, "string", listed[1].lower(), names=names)
    return Field(name, sql_type(mysql_type))


def sql_type(mysql_type: str) -> str:
    """Return the Spark SQL type of a MySQL column type such as ``decimal(10,2) unsigned``."""
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
    return _SQL_TYPES.get(base, "string")


def _is_known(lowered: str) -> bool:
    """Check whether MySQL has such a type; types are empty for tables unknown to Canal."""
    base = _base(lowered)
    if base not in _DECIMALS:
        return not base or base in _NAMES
    precision, scale = _digits(lowered)
    whole = _DECIMAL.fullmatch(lowered) and 0 < precision <= _MOST_DIGITS
    return bool(whole) and scale <= min(precision, _MOST_PLACES)


def _base(lowered: str) -> str:
    return re.split(r"[ (]", lowered, maxsplit=1)[0]


def _digits(lowered: str) -> tuple[int, int]:
    match = _DECIMAL.match(lowered)
    return (int(match[1]), int(match[2] or 0)) if match and match[1] else (10, 0)
