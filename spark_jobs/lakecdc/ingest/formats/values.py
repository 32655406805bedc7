"""Values out of JSON: a column's type, how the format writes it, and whether it fits.

A value that does not fit its type is found, never cut and never made null: ``misfit`` tells it from a real null.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from base64 import b64encode
from dataclasses import dataclass, replace

from lakecdc.ingest.change import Column
from lakecdc.model.columns import DECIMAL, FIRST_DAY, LAST_DAY, MICROSECONDS_OF_A_DAY, ColumnType
from lakecdc.sql import literal

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("date", "timestamp", "timestamp_ntz")
# types whose values a database keeps out of line, so that they can be left out of an update's log
_LARGE = re.compile(r"string|binary|decimal")
_VARIABLE = (("scale", "int"), ("value", "string"))
# digits behind the point that Postgres' numbers have at most; what claims more is none
_MOST_ZEROS = 16383
# MySQL's times may be negative or longer than a day
_TIME_OF_DAY = (
    "format_string('%s%02d:%02d:%02d.%06d', CASE WHEN m < 0 THEN '-' ELSE '' END, abs(m) DIV 3600000000, "
    "abs(m) DIV 60000000 % 60, abs(m) DIV 1000000 % 60, abs(m) % 1000000)"
)


@dataclass(frozen=True)
class Field:
    """A column as a format delivers it.

    :param type: Spark SQL type it is to have.
    :param encoding: how the JSON value stands for it: ``plain``; ``base64``; ``decimal_bytes`` (unscaled, big-endian,
        base64; the scale is the type's, or the field's for type string); ``variable_decimal`` (an object of scale and
        such bytes); ``epoch_days``, ``epoch_millis``, ``epoch_micros``, ``epoch_nanos``; ``time_millis``,
        ``time_micros``, ``time_nanos`` of the day; ``enum``, ``set`` (the number of one of ``names``, or the bits of
        some).
    :param scale: of ``decimal_bytes``; below 0 it counts zeros at the end of the number that are not written.
    :param names: of ``enum`` and ``set``.
    """

    name: str
    type: str
    encoding: str = "plain"
    scale: int = 0
    names: tuple[str, ...] = ()

    @property
    def column(self) -> Column:
        """The column of the target table."""
        return Column(self.name, self.type)

    @property
    def column_type(self) -> ColumnType:
        """How its values are parsed."""
        return ColumnType(self.type, self.encoding, self.scale, self.names)

    @property
    def is_large(self) -> bool:
        """Whether a database may leave the value out of an update, so that a placeholder stands for it."""
        return bool(_LARGE.match(self.type))

    def with_type(self, sql_type: str) -> Field:
        """The same values in another type."""
        if self.names and sql_type != "string":
            # who wants numbers has them
            return Field(self.name, sql_type)
        plain_binary = sql_type == "binary" and self.encoding == "plain"
        return replace(self, type=sql_type, encoding="base64" if plain_binary else self.encoding)

    def with_encoding(self, encoding: str) -> Field:
        """The same column, its values written in another way; the type tells the scale."""
        decimal = DECIMAL.match(self.type)
        return replace(self, encoding=encoding, scale=int(decimal[2]) if decimal else 0)


def member(image: str, name: str, sql_type: str) -> str:
    """SQL of a top-level member in a type; null where it is null, absent or does not fit.

    :param image: SQL of the variant that it is a member of.
    """
    if '"' in name:
        # no path can name it
        found = f"try_element_at(try_variant_get({image}, '$', 'map<string,variant>'), {literal(name)})"
        return f"try_variant_get({found}, '$', {literal(sql_type)})"
    path = f'$["{name}"]'
    return f"try_variant_get({image}, {literal(path)}, {literal(sql_type)})"


def value(image: str, field: Field) -> str:
    """SQL of a column's value in a row image; null where it is null, absent or does not fit.

    :param image: SQL of the image's variant.
    """
    if field.encoding == "plain":
        return _plain(image, field)
    text, raw = (member(image, field.name, sql_type) for sql_type in ("string", "variant"))
    if field.names:
        return _let(text, "t", _named(field))
    if field.encoding == "base64":
        return f"try_to_binary({text}, 'base64')"
    if field.encoding == "decimal_bytes":
        # Connect's ``decimal.format`` NUMERIC writes numbers, of which some would pass for base64
        unscaled = _plain_decimal(_unscaled(text, str(field.scale)), field.type)
        is_text = f"schema_of_variant({raw}) = 'STRING'"
        return f"CASE WHEN {is_text} THEN {unscaled} ELSE {exact_decimal(text, field.type)} END"
    if field.encoding == "variable_decimal":
        scale, unscaled = (member(raw, part, sql_type) for part, sql_type in _VARIABLE)
        return _plain_decimal(_let(scale, "s", _unscaled(unscaled, "s")), field.type)
    return _time(member(image, field.name, "bigint"), field.encoding, field.type)


def misfit(image: str, field: Field) -> str | None:
    """SQL that is true for a value that does not fit the column; None if every value does."""
    found = value(image, field)
    if field.type == "string" and field.encoding == "plain":
        return None
    raw = member(image, field.name, "variant")
    # in this order: most values fit, and are looked up anyway
    lost = f"({found} IS NULL AND {raw} IS NOT NULL AND NOT is_variant_null({raw}))"
    if field.encoding != "plain":
        return lost
    if field.type in _INTEGERS:
        # a cast would cut the fraction off
        return f"({lost} OR coalesce({member(image, field.name, 'double')} != CAST({found} AS double), false))"
    decimal = DECIMAL.match(field.type)
    if decimal and not _is_wide(decimal):
        whole = member(image, field.name, "decimal(38,18)")
        return f"({lost} OR coalesce({whole} != {found}, false))"
    if field.type in ("float", "double"):
        lost = f"({lost} OR {strange_fraction(member(image, field.name, 'string'), found)})"
    if field.type == "double":
        # an integer whose last digits a double cannot hold
        whole = member(image, field.name, "decimal(38,0)")
        integer = f"regexp_like(schema_of_variant({raw}), '^(BIGINT|DECIMAL.*,0.)$')"
        held = f"try_cast(CAST({found} AS string) AS decimal(38,0))"
        return f"({lost} OR coalesce({integer} AND {held} != {whole}, false))"
    if field.type == "boolean":
        return f"({lost} OR coalesce({member(image, field.name, 'double')} NOT IN (0, 1), false))"
    if field.type in _TIMES:
        # MySQL's date that is none
        text = member(image, field.name, "string")
        lost = f"({lost} AND NOT coalesce(startswith({text}, '0000-00-00'), false))"
        return f"({lost} OR {more_than_a_day(text)})" if field.type == "date" else lost
    return lost


def is_placeholder(image: str, field: Field, unavailable_value: str) -> str | None:
    """SQL that is true for a value that stands for "unchanged"; None if the column cannot hold one.

    :param unavailable_value: the placeholder's text.
    """
    if not _LARGE.match(field.type):
        return None
    shapes = ", ".join(literal(s) for s in placeholder_shapes(unavailable_value))
    return f"{member(image, field.name, 'string')} IN ({shapes})"


def placeholder_shapes(unavailable_value: str) -> tuple[str, ...]:
    """How Debezium writes its placeholder in columns of different types, as JSON text.

    Source: Debezium's ``UnchangedToastedPlaceholder``: text, bytes, arrays of text, bytes, integers and uuid, hstore.
    """
    raw = unavailable_value.encode()
    if unavailable_value.startswith("hex:"):
        raw = bytes.fromhex(unavailable_value[4:])
    text = raw.decode("utf-8", "replace")
    encoded = b64encode(raw).decode()
    named = uuid.UUID(bytes=hashlib.md5(raw).digest(), version=3)
    shapes: list[object] = [[text], [encoded], list(raw), [str(named)], {text: text}]
    written = [json.dumps(shape, separators=(",", ":"), ensure_ascii=False) for shape in shapes]
    return (text, encoded, raw.hex(), *written, *(f'{{"scale":{s},"value":"{encoded}"}}' for s in (0,)))


def _plain(image: str, field: Field) -> str:
    sql_type, text = field.type, member(image, field.name, "string")
    decimal = DECIMAL.match(sql_type)
    if decimal and _is_wide(decimal):
        return exact_decimal(text, sql_type)
    if sql_type in _INTEGERS or sql_type in ("double", "float", "boolean", "string") or decimal:
        return member(image, field.name, sql_type)
    if sql_type == "date":
        # Debezium's ISO dates end with a zone
        text = f"regexp_replace({text}, 'Z$', '')"
    if sql_type in _TIMES:
        return _let(text, "t", calendar("t", sql_type))
    return f"try_to_binary({text}, 'base64')" if sql_type == "binary" else f"try_cast({text} AS {sql_type})"


def _named(field: Field) -> str:
    """SQL of what the text ``t`` stands for: a number for one or some of the names, anything else for itself."""
    listed = ", ".join(literal(name) for name in field.names)
    number, count = "try_cast(t AS decimal(20,0))", len(field.names)
    if field.encoding == "enum":
        named = f"WHEN {number} <= {count} THEN get(array('', {listed}), CAST(t AS int))"
    else:
        signed = "CAST(conv(t, 10, -10) AS bigint)"
        bits = [f"CASE WHEN bit_get({signed}, {i}) = 1 THEN {literal(name)} END" for i, name in enumerate(field.names)]
        named = f"WHEN {number} < {2**count}BD THEN concat_ws(',', {', '.join(bits)})"
    return f"CASE WHEN NOT regexp_like(t, '^[0-9]{{1,20}}$') THEN t {named} WHEN t IN ({listed}) THEN t END"


def _let(sql: str, name: str, body: str) -> str:
    """SQL that evaluates an expression once and uses it several times."""
    return f"get(transform(array({sql}), {name} -> {body}), 0)"


def calendar(text: str, sql_type: str) -> str:
    """SQL of a date or timestamp out of a text in ISO-8601; null for what is none.

    Spark would take a number for a year, and a time of day for one of today.
    """
    return f"CASE WHEN instr({text}, '-') = 5 AND {text} >= '0001' THEN try_cast({text} AS {sql_type}) END"


def more_than_a_day(text: str) -> str:
    """SQL that is true for a text behind whose date stands more than midnight, which Spark's cast cuts off."""
    return f"coalesce(regexp_like({text}, '[T ].*[^0:. Z+]'), false)"


def strange_fraction(text: str, found: str) -> str:
    """SQL that is true for a text of a float or double that only Spark reads, or whose number is too large.

    :param found: SQL of the value.
    """
    strange = f"regexp_like({text}, '(?i)[dfxp]') OR abs({found}) = double('Infinity')"
    return f"coalesce(({strange}) AND NOT {text} ILIKE '%inf%', false)"


def _unrounded(text: str, sql_type: str, scale: str) -> str:
    """SQL of a decimal out of a text without exponent; null for one with more digits after the point than fit."""
    fraction = f"trim(TRAILING '0' FROM regexp_extract({text}, '[.]([0-9]*)', 1))"
    return f"CASE WHEN length({fraction}) <= {scale} THEN try_cast({text} AS {sql_type}) END"


def _is_wide(decimal: re.Match[str]) -> bool:
    """Whether a decimal(38,18) cannot tell that a value has been rounded to the type."""
    return int(decimal[1]) - int(decimal[2]) > 20 or int(decimal[2]) >= 18


def exact_decimal(text: str, sql_type: str) -> str:
    """SQL of a number's text in a type; null if it would have to be rounded."""
    decimal = DECIMAL.match(sql_type)
    if not decimal:
        return f"try_cast({text} AS {sql_type})"
    plain = _unrounded("t", sql_type, decimal[2])
    # what is too large for a comparison has no fraction either
    large = f"CASE WHEN try_cast(t AS decimal(38,18)) IS NULL THEN try_cast(t AS {sql_type}) END"
    power = f"coalesce({_cast('t', sql_type)}, {large})"
    return _let(text, "t", f"CASE WHEN regexp_like(t, '[eE]') THEN {power} ELSE {plain} END")


def _cast(text: str, sql_type: str) -> str:
    """Cast a text; a decimal that would have to be rounded becomes null."""
    exact, whole = f"try_cast(t AS {sql_type})", "decimal(38,18)"
    # compared with each other as they are, both would lose their fractions
    return _let(text, "t", f"CASE WHEN try_cast({exact} AS {whole}) = try_cast(t AS {whole}) THEN {exact} END")


def _plain_decimal(text: str, sql_type: str) -> str:
    """SQL of a type out of a number's text without exponent; null if it would have to be rounded."""
    decimal = DECIMAL.match(sql_type)
    return _let(text, "t", _unrounded("t", sql_type, decimal[2])) if decimal else f"try_cast({text} AS {sql_type})"


def _unscaled(base64: str, scale: str) -> str:
    """Decimal text of a big-endian two's complement number of up to 16 bytes, in base64.

    :param scale: SQL of the digits after the point; below 0, of zeros at the end that the number does not have yet.
    """
    padded = "lpad(h, 32, CASE WHEN substr(h, 1, 1) >= '8' THEN 'F' ELSE '0' END)"
    high = "CAST(conv(substr(p, 1, 16), 16, -10) AS decimal(38,0))"
    low = "CAST(conv(substr(p, 17, 16), 16, 10) AS decimal(20,0))"
    whole = f"try_add(try_multiply({high}, CAST(18446744073709551616 AS decimal(20,0))), {low})"
    number = _let(f"CASE WHEN length(h) <= 32 THEN {padded} END", "p", f"CAST({whole} AS string)")
    number = _let(f"hex(try_to_binary({base64}, 'base64'))", "h", number)
    sign = "CASE WHEN n LIKE '-%' THEN '-' ELSE '' END"
    places = f"greatest({scale}, 0)"
    point = f"CASE WHEN {scale} > 0 THEN '.' ELSE '' END"
    pointed = f"concat({sign}, substr(f, 1, length(f) - {places}), {point}, substr(f, length(f) - {places} + 1))"
    zeros = f"CASE WHEN {scale} < 0 AND d != '0' THEN concat(d, repeat('0', -({scale}))) ELSE"
    figures = f"{zeros} lpad(d, greatest(length(d), {places} + 1), '0') END"
    figures = f"CASE WHEN {scale} BETWEEN -{_MOST_ZEROS} AND {_MOST_ZEROS} THEN {figures} END"
    return _let(number, "n", _let(_let("replace(n, '-', '')", "d", figures), "f", pointed))


def _time(number: str, encoding: str, sql_type: str) -> str:
    kind, _, unit = encoding.partition("_")
    if unit == "days":
        days = f"CASE WHEN n BETWEEN {FIRST_DAY} AND {LAST_DAY} THEN date_from_unix_date(CAST(n AS int)) END"
        return f"CAST({_let(number, 'n', days)} AS {sql_type})"
    to_micros = {"millis": "try_multiply(n, 1000L)", "micros": "n", "nanos": "n DIV 1000"}[unit]
    # Postgres' infinity arrives as the ends of the range, which no timestamp of Iceberg's can hold
    inside = f"m BETWEEN {FIRST_DAY} * {MICROSECONDS_OF_A_DAY} AND {LAST_DAY + 1} * {MICROSECONDS_OF_A_DAY} - 1"
    # the lowest number has no positive one
    time_of_day = f"CASE WHEN m >= -{2**63 - 1} THEN {_TIME_OF_DAY} END"
    made = f"CASE WHEN {inside} THEN timestamp_micros(m) END" if kind == "epoch" else time_of_day
    return f"CAST({_let(_let(number, 'n', to_micros), 'm', made)} AS {sql_type})"
