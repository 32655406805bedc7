"""SQL of DuckDB that turns a JSON value's text into a column's value, and tells whether the text is exactly one.

All values are read as text; what is not exact is left to :mod:`lakecdc.model.columns`.
"""

from __future__ import annotations

import json

from lakecdc.ingest.formats.values import Field
from lakecdc.model.columns import DECIMAL

_INTEGERS = {"tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT"}
_OTHERS = {
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
_MOMENTS = ("timestamp_ntz", "timestamp")
# years 0001 to 9999
_DATE = r"(\d{3}[1-9]|\d\d[1-9]\d|\d[1-9]\d\d|[1-9]\d{3})-\d\d-\d\d"
_CLOCK = r"[T ]([01]\d|2[0-3]):\d\d:\d\d(\.\d{1,6})?"
# doubles keep this many digits exactly; a longer decimal may have been a JSON number that lost some
_EXACT_DIGITS = 15
# in microseconds; longer ones are nobody's time of day
_LONGEST_TIME = 10**15
# what JSON values look like that are no strings, arrays or objects, and that could pass for base64
_BARE = r"true|-?\d[\d.eE+-]*"
# JSON numbers that are no integers of up to 64 bits
_LONG_NUMBER = r"-?(0|[1-9]\d*)(\.\d+([eE][+-]?\d+)?|[eE][+-]?\d+)|[1-9]\d{19,}|-[1-9]\d{18,}|-0"
# zeros that a negative scale can count for a number of 128 bits
_MOST_ZEROS = 37
# digits after the point of numbers that tell their scale; more, and negative scales, are parsed one by one
_MOST_VARIABLE_SCALE = 18


def is_told_by_text(field: Field) -> bool:
    """Check whether SQL can turn texts into a column's values, and tell which are exact."""
    column = field.column_type
    if not column.has_parser or column.is_converted:
        return False
    if field.encoding == "decimal_bytes":
        decimal = DECIMAL.match(field.type)
        return -_MOST_ZEROS <= field.scale <= (int(decimal[2]) if decimal else 37)
    return field.type != "binary" or field.encoding == "base64"


def duck_type(sql_type: str) -> str | None:
    """DuckDB's name of a Spark SQL type; None if the engine does not know it."""
    decimal = DECIMAL.match(sql_type)
    return f"DECIMAL({decimal[1]},{decimal[2]})" if decimal else {**_INTEGERS, **_OTHERS}.get(sql_type)


def exact(field: Field, text: str, made: str, *, kind: str | None = None) -> str:
    """Return SQL that is true if a text is exactly a value of the column's type.

    What is dear stands in a CASE, because DuckDB evaluates all members of an OR.

    :param made: column that holds the :func:`value` of the text already.
    :param kind: SQL of the JSON type of the value, where the text does not tell it; None if it cannot be found out.
    """
    fits = f"{made} IS NOT NULL"
    if field.names:
        return f"{fits} AND CASE WHEN regexp_full_match({text}, '[0-9]{{1,20}}') THEN true ELSE {_is_text(kind)} END"
    if field.encoding == "base64":
        told = f"CASE WHEN {_is_word(text)} THEN true ELSE {_is_text(kind)} END"
        return f"{fits} AND to_base64({made}) = {text} AND {told}"
    if field.encoding == "decimal_bytes":
        canonical = f"to_base64({_bytes(text)}) = {text}"
        number = f"{_is_decimal(field, text)} AND ({_is_short(text)})"
        return f"{fits} AND CASE WHEN {_is_word(text)} THEN {canonical} ELSE {number} END"
    if field.encoding == "variable_decimal":
        # what is not exact has no value, unless it is such an object in a string
        return f"{fits} AND {kind} = 'OBJECT'" if kind else "false"
    if field.encoding != "plain":
        return f"{fits} AND {_is_integer(text)}"
    if field.type in _INTEGERS:
        # nearly every integer is written in one way, and comparing is cheaper than a regular expression
        return f"{fits} AND CASE WHEN {made}::VARCHAR = {text} THEN true ELSE {_is_integer(text)} END"
    if DECIMAL.match(field.type):
        told = f"CASE WHEN {_is_short(text)} THEN true ELSE {_is_text(kind)} END"
        written = f"CASE WHEN {made}::VARCHAR = {text} THEN true ELSE {_is_decimal(field, text)} END"
        return f"{fits} AND {written} AND {told}"
    if field.type in ("float", "double"):
        number = f"{fits} AND isfinite({made}) AND regexp_full_match({text}, '-?\\d[\\d.eE+-]*')"
        # the last digits of a long integer may be more than a double can hold
        return f"{number} AND (length({text}) <= {_EXACT_DIGITS} OR regexp_matches({text}, '[.eE]'))"
    if field.type == "boolean":
        return f"{text} IN ('true', 'false')"
    if field.type == "date":
        return f"{fits} AND regexp_full_match({text}, '{_DATE}')"
    if field.type in _MOMENTS:
        zone = "(Z|[+-](0\\d|1[0-7]):[0-5]\\d)?" if field.type == "timestamp" else ""
        # an offset may lead out of the first year and the last
        years = f"{text} BETWEEN '0001-01-02' AND '9999-12-31'"
        return f"regexp_full_match({text}, '{_DATE}{_CLOCK}{zone}') AND {years} AND {fits}"
    return f"CASE WHEN {_is_strange(text)} THEN {_is_text(kind)} ELSE true END"


def value(field: Field, text: str, *, kind: str | None = None) -> str:
    """Return SQL of a column's value from a text that is exact; TRY, since what is not exact is told apart beside it.

    :param kind: as for :func:`exact`.
    """
    duck = duck_type(field.type)
    if field.names:
        return _named(field, text)
    if field.encoding == "base64":
        return f"TRY(from_base64({text}))"
    if field.encoding == "decimal_bytes":
        # Connect's ``decimal.format`` NUMERIC writes numbers, of which some would pass for base64
        number = f"TRY_CAST({text} AS {duck})" if field.type != "string" and kind else "NULL"
        of_bytes = f"TRY_CAST({_scaled(_unscaled(_bytes(text)), field.scale)} AS {duck})"
        is_text = f"CASE WHEN {_is_word(text)} THEN true ELSE {_is_text(kind)} END"
        return f"CASE WHEN {is_text} THEN {of_bytes} ELSE {number} END"
    if field.encoding == "variable_decimal":
        return _variable(text, field.type)
    if field.encoding != "plain":
        return _time(text, field.encoding, str(duck))
    return text if field.type == "string" else f"TRY_CAST({text} AS {duck})"


def _named(field: Field, text: str) -> str:
    """Return SQL of what a text stands for: a number for one or some of the names, anything else for itself."""
    listed, count = ", ".join(text_literal(name) for name in field.names), len(field.names)
    number = f"TRY_CAST({text} AS HUGEINT)"
    if field.encoding == "enum":
        named = f"WHEN {number} <= {count} THEN (['', {listed}])[{number}::INTEGER + 1]"
    else:
        bits = [
            f"CASE WHEN {number} // {2**i}::HUGEINT % 2 = 1 THEN {text_literal(name)} END"
            for i, name in enumerate(field.names)
        ]
        named = f"WHEN {number} < {2**count}::HUGEINT THEN concat_ws(',', {', '.join(bits)})"
    is_name = f"NOT regexp_full_match({text}, '[0-9]{{1,20}}')"
    return f"CASE WHEN {is_name} THEN {text} {named} WHEN {text} IN ({listed}) THEN {text} END"


def _is_integer(text: str) -> str:
    return f"regexp_full_match({text}, '-?\\d+')"


def _is_decimal(field: Field, text: str) -> str:
    decimal = DECIMAL.match(field.type)
    places = f"(\\.\\d{{1,{decimal[2]}}})?" if decimal and int(decimal[2]) else ""
    return f"regexp_full_match({text}, '-?\\d+{places}')"


def _is_short(text: str) -> str:
    """Return SQL that is true for a text of which no digit is lost even if it was a JSON number."""
    return f"length({text}) <= {_EXACT_DIGITS} OR NOT contains({text}, '.')"


def _is_word(text: str) -> str:
    """Return SQL that is true for a text that only a JSON string can have, or an array or object."""
    return f"NOT regexp_full_match({text}, '{_BARE}')"


def _is_strange(text: str) -> str:
    """Return SQL that is true for a text that the engines write differently unless it is a JSON string.

    These are arrays and objects, numbers with a fraction or exponent and integers of more than 64 bits.
    """
    number = f"CASE WHEN {text} >= '-' THEN regexp_full_match({text}, '{_LONG_NUMBER}') ELSE false END"
    structured = " OR ".join(f"({text} >= '{begin}' AND {text} < '{end}')" for begin, end in ("[\\", "{|"))
    return f"CASE WHEN {text} < ':' THEN {number} ELSE {structured} END"


def _is_text(kind: str | None) -> str:
    """Return SQL that is true if a value is a JSON string."""
    return f"{kind} = 'VARCHAR'" if kind else "false"


def _bytes(base64: str) -> str:
    """Return SQL of up to 15 bytes, which an unscaled number of 128 bits can be made of; null for more."""
    return f"TRY(from_base64(CASE WHEN length({base64}) BETWEEN 4 AND 20 THEN {base64} END))"


def _unscaled(octets: str) -> str:
    """Return SQL of a big-endian number in two's complement."""
    sign = f"(1::HUGEINT << (8 * octet_length({octets}) - 1)::INTEGER)"
    return f"(xor({octets}::BIT::HUGEINT, {sign}) - {sign})"


def _scaled(unscaled: str, scale: int) -> str:
    """Return SQL of a decimal with its point set, or of a whole number with the zeros that a negative scale counts."""
    if scale < 0:
        return f"TRY({unscaled} * 1{'0' * -scale}::HUGEINT)"
    whole = f"{unscaled}::DECIMAL(38,0)"
    return f"({whole} * '0.{'1'.rjust(scale, '0')}'::DECIMAL({scale},{scale}))" if scale else whole


def _variable(text: str, sql_type: str) -> str:
    """Return SQL of a decimal that is an object of its scale and bytes."""
    parts = f'regexp_extract({text}, \'^\\{{"scale":(\\d{{1,2}}),"value":"([^"]*)"\\}}$\', [\'s\', \'v\'])'
    octets = f"CASE WHEN to_base64({_bytes('p.v')}) = p.v THEN {_bytes('p.v')} END"
    number = f"{let(octets, 'o', _unscaled('o'))}::VARCHAR"
    figures = "lpad(ltrim(n, '-'), greatest(length(ltrim(n, '-')), s + 1)::INTEGER, '0')"
    point = "CASE WHEN s > 0 THEN '.' ELSE '' END"
    pointed = f"concat(left(f, length(f) - s), {point}, right(f, s))"
    signed = f"concat(CASE WHEN starts_with(n, '-') THEN '-' ELSE '' END, {let(figures, 'f', pointed)})"
    scale = f"CASE WHEN p.s::VARCHAR != '' AND p.s::INTEGER <= {_MOST_VARIABLE_SCALE} THEN p.s::INTEGER END"
    made = let(scale, "s", let(number, "n", f"CASE WHEN s + length(n) > 0 THEN {signed} END"))
    made = let(parts, "p", made)
    if sql_type == "string":
        return made
    kind, whole = duck_type(sql_type), f"DECIMAL(38,{_MOST_VARIABLE_SCALE})"
    fitting = (
        f"CASE WHEN TRY_CAST(TRY_CAST(t AS {kind}) AS {whole}) = TRY_CAST(t AS {whole}) THEN TRY_CAST(t AS {kind}) END"
    )
    return let(made, "t", fitting)


def _time(text: str, encoding: str, kind: str) -> str:
    """Return SQL of what a number of days, milliseconds, microseconds or nanoseconds stands for."""
    number = f"TRY_CAST({text} AS BIGINT)"
    of, _, unit = encoding.partition("_")
    if unit == "days":
        return f"(DATE '1970-01-01' + CASE WHEN {number} BETWEEN -719162 AND 2932896 THEN {number} END::INTEGER)"
    low, high = (-62135596800000000, 253402300799999999) if of == "epoch" else (-_LONGEST_TIME, _LONGEST_TIME)
    micros = number
    if unit == "millis":
        low, high, micros = low // 1000, high // 1000, f"{number} * 1000"
    elif unit == "nanos":
        low, high, micros = -(2**63), 2**63 - 1, f"{number} // 1000"
    inside = f"{number} BETWEEN {low} AND {high}"
    if of == "epoch":
        return f"make_timestamp(CASE WHEN {inside} THEN {micros} END)::{kind}"
    # MySQL's times may be negative or longer than a day
    parts = ", ".join(f"abs({micros}) {part}" for part in ("// 3600000000", "// 60000000 % 60", "// 1000000 % 60"))
    sign = f"CASE WHEN {micros} < 0 THEN '-' ELSE '' END"
    long = f"printf('%s%02d:%02d:%02d.%06d', {sign}, {parts}, abs({micros}) % 1000000)"
    of_day = f"strftime(make_timestamp({micros}), '%H:%M:%S.%f')"
    return f"CASE WHEN {inside} THEN CASE WHEN {micros} BETWEEN 0 AND 86399999999 THEN {of_day} ELSE {long} END END"


def let(sql: str, name: str, body: str) -> str:
    """Return SQL that evaluates an expression once and uses it several times."""
    return f"list_transform([{sql}], lambda {name}: {body})[1]"


def name_literal(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str | None) -> str:
    """Return a text as SQL."""
    return "'" + (text or "").replace("'", "''") + "'"


def json_literal(shape: object) -> str:
    """Return a JSON document as SQL."""
    return text_literal(json.dumps(shape, ensure_ascii=False))
