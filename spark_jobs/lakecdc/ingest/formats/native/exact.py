"""SQL of DuckDB that turns a JSON value's text into a column's value, and tells whether the text is exactly one.

All values are read as text; what is not exact is the JVM's to judge.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from lakecdc.ingest.formats.values import Field

if TYPE_CHECKING:
    import pyarrow as pa

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_INTEGERS = {"tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT"}
_OTHERS = {
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "string": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
_EPOCHS = {
    "epoch_days": ("date",),
    "epoch_millis": ("timestamp_ntz", "timestamp"),
    "epoch_micros": ("timestamp_ntz", "timestamp"),
}
# years 0001 to 9999
_DATE = r"(\d{3}[1-9]|\d\d[1-9]\d|\d[1-9]\d\d|[1-9]\d{3})-\d\d-\d\d"
_CLOCK = r"[T ]([01]\d|2[0-3]):\d\d:\d\d(\.\d{1,6})?"
# doubles keep this many digits exactly; a longer decimal may have been a JSON number that lost some
_EXACT_DIGITS = 15
# JSON numbers of which each engine has a text of its own
_OWN_TEXT = r"-?\d+(\.\d+([eE][+-]?\d+)?|[eE][+-]?\d+)|-?\d{39,}"
_INSTANT = Field("", "timestamp")


def supports(field: Field) -> bool:
    """Tell whether the engine can decode a column."""
    if field.encoding != "plain":
        return field.type in _EPOCHS.get(field.encoding, ())
    return duck_type(field.type) is not None


def duck_type(sql_type: str) -> str | None:
    """DuckDB's name of a Spark SQL type; None if the engine does not know it."""
    decimal = _DECIMAL.match(sql_type)
    return f"DECIMAL({decimal[1]},{decimal[2]})" if decimal else {**_INTEGERS, **_OTHERS}.get(sql_type)


def arrow_type(sql_type: str) -> pa.DataType | None:
    """Arrow's type of a Spark SQL type; None if the engine does not know it."""
    import pyarrow as pa

    decimal = _DECIMAL.match(sql_type)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    known = {
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "string": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    return known.get(sql_type)


def may_be_left_out(field: Field) -> bool:
    """Tell whether a database may leave the column's value out of an update, so that a placeholder stands for it."""
    return field.type == "string" or bool(_DECIMAL.match(field.type))


def exact(field: Field, text: str, *, kind: str | None = None, made: str | None = None) -> str:
    """SQL that is true if a text is exactly a value of the column's type.

    :param kind: SQL of the JSON type of the value, where a text that looks like a structure or a number can be found
        out to be a string.
    :param made: column that holds the :func:`value` of the text already.
    """
    decimal = _DECIMAL.match(field.type)
    if field.encoding == "epoch_days":
        return f"TRY_CAST({text} AS BIGINT) BETWEEN -719162 AND 2932896 AND {_is_integer(text)}"
    if field.encoding.startswith("epoch_"):
        unit = 1000 if field.encoding == "epoch_millis" else 1
        low, high = -62135596800000000 // unit, 253402300799999999 // unit
        return f"TRY_CAST({text} AS BIGINT) BETWEEN {low} AND {high} AND {_is_integer(text)}"
    fits = f"{made or f'TRY_CAST({text} AS {duck_type(field.type)})'} IS NOT NULL"
    if field.type in _INTEGERS and made:
        # nearly every integer is written in one way, and comparing is cheaper than a regular expression
        return f"{fits} AND CASE WHEN {made}::VARCHAR = {text} THEN true ELSE {_is_integer(text)} END"
    if field.type in _INTEGERS:
        return f"{fits} AND {_is_integer(text)}"
    if decimal:
        places = f"(\\.\\d{{1,{decimal[2]}}})?" if int(decimal[2]) else ""
        return f"length({text}) <= {_EXACT_DIGITS} AND regexp_full_match({text}, '-?\\d+{places}') AND {fits}"
    if field.type in ("float", "double"):
        number = f"{fits} AND regexp_full_match({text}, '-?\\d[\\d.eE+-]*')"
        # the last digits of a long integer may be more than a double can hold
        return f"{number} AND (length({text}) <= {_EXACT_DIGITS} OR regexp_matches({text}, '[.eE]'))"
    if field.type == "boolean":
        return f"{text} IN ('true', 'false')"
    if field.type == "date":
        return f"{fits} AND regexp_full_match({text}, '{_DATE}')"
    if field.type in ("timestamp", "timestamp_ntz"):
        zone = "(Z|[+-](0\\d|1[0-7]):\\d\\d)?" if field.type == "timestamp" else ""
        return f"regexp_full_match({text}, '{_DATE}{_CLOCK}{zone}') AND {fits}"
    # what else than text has a text of its own in each engine; a JSON document or a number in a string is just a string
    other = f"({text} < ':' AND regexp_full_match({text}, '{_OWN_TEXT}'))"
    is_string = f"{kind} = 'VARCHAR'" if kind else "false"
    return f"CASE WHEN starts_with({text}, '{{') OR starts_with({text}, '[') OR {other} THEN {is_string} ELSE true END"


def exact_instant(text: str) -> str:
    """SQL that is true if a text is exactly a date and time."""
    return exact(_INSTANT, text)


def instant(text: str) -> str:
    """SQL of a date and time in microseconds since 1970, out of a text that is exactly one."""
    return f"epoch_us({value(_INSTANT, text)})"


def _is_integer(text: str) -> str:
    return f"regexp_full_match({text}, '-?\\d+')"


def value(field: Field, text: str) -> str:
    """SQL of a column's value from a text that is exact; TRY, since what is not exact is told apart beside it."""
    kind = duck_type(field.type)
    if field.encoding == "epoch_days":
        return f"(DATE '1970-01-01' + TRY_CAST({text} AS INTEGER))"
    if field.encoding.startswith("epoch_"):
        factor = 1000 if field.encoding == "epoch_millis" else 1
        bounded = f"CASE WHEN {exact(field, text)} THEN TRY_CAST({text} AS BIGINT) END"
        return f"make_timestamp({bounded} * {factor})::{kind}"
    return text if field.type == "string" else f"TRY_CAST({text} AS {kind})"


def name_literal(name: str) -> str:
    """A name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str | None) -> str:
    """A text as SQL."""
    return "'" + (text or "").replace("'", "''") + "'"


def json_literal(shape: object) -> str:
    """A JSON document as SQL."""
    return text_literal(json.dumps(shape, ensure_ascii=False))
