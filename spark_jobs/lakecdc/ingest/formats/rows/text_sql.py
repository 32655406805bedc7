"""Spark SQL of values out of texts: dates and decimals that are neither cut nor rounded."""

from __future__ import annotations

from lakecdc.model.columns import DECIMAL
from lakecdc.sql import literal


def member(image: str, name: str, sql_type: str) -> str:
    """Return SQL of a top-level member in a type; null where it is null, absent or does not fit.

    :param image: SQL of the variant that it is a member of.
    """
    if '"' in name:
        # no path can name it
        found = f"try_element_at(try_variant_get({image}, '$', 'map<string,variant>'), {literal(name)})"
        return f"try_variant_get({found}, '$', {literal(sql_type)})"
    path = f'$["{name}"]'
    return f"try_variant_get({image}, {literal(path)}, {literal(sql_type)})"


def calendar(text: str, sql_type: str) -> str:
    """Return SQL of a date or timestamp out of a text in ISO-8601; null for what is none.

    Spark would take a number for a year, and a time of day for one of today.
    """
    return f"CASE WHEN instr({text}, '-') = 5 AND {text} >= '0001' THEN try_cast({text} AS {sql_type}) END"


def more_than_a_day(text: str) -> str:
    """Return SQL that is true for a text behind whose date stands more than midnight, which Spark's cast cuts off."""
    return f"coalesce(regexp_like({text}, '[T ].*[^0:. Z+]'), false)"


def strange_fraction(text: str, found: str) -> str:
    """Return SQL that is true for a text of a float or double that only Spark reads, or whose number is too large.

    :param found: SQL of the value.
    """
    strange = f"regexp_like({text}, '(?i)[dfxp]') OR abs({found}) = double('Infinity')"
    return f"coalesce(({strange}) AND NOT {text} ILIKE '%inf%', false)"


def exact_decimal(text: str, sql_type: str) -> str:
    """Return SQL of a number's text in a type; null if it would have to be rounded."""
    decimal = DECIMAL.match(sql_type)
    if not decimal:
        return f"try_cast({text} AS {sql_type})"
    plain = _unrounded("t", sql_type, decimal[2])
    # what is too large for a comparison has no fraction either
    large = f"CASE WHEN try_cast(t AS decimal(38,18)) IS NULL THEN try_cast(t AS {sql_type}) END"
    power = f"coalesce({_cast('t', sql_type)}, {large})"
    return _let(text, "t", f"CASE WHEN regexp_like(t, '[eE]') THEN {power} ELSE {plain} END")


def _unrounded(text: str, sql_type: str, scale: str) -> str:
    """Return SQL of a decimal from a text without exponent; null if more digits after the point than fit."""
    fraction = f"trim(TRAILING '0' FROM regexp_extract({text}, '[.]([0-9]*)', 1))"
    return f"CASE WHEN length({fraction}) <= {scale} THEN try_cast({text} AS {sql_type}) END"


def _cast(text: str, sql_type: str) -> str:
    """Cast a text; a decimal that would have to be rounded becomes null."""
    exact, whole = f"try_cast(t AS {sql_type})", "decimal(38,18)"
    # compared with each other as they are, both would lose their fractions
    return _let(text, "t", f"CASE WHEN try_cast({exact} AS {whole}) = try_cast(t AS {whole}) THEN {exact} END")


def _let(sql: str, name: str, body: str) -> str:
    """Return SQL that evaluates an expression once and uses it several times."""
    return f"get(transform(array({sql}), {name} -> {body}), 0)"
