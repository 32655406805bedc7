"""Parse the values of a column exactly: one parser for each encoding of each type.

A parser converts a token (:mod:`lakecdc.model.tokens`) to the value that Arrow stores in the column: ``int`` (also days
since 1970 for dates and microseconds since 1970 for timestamps), ``float``, ``bool``, ``str``, ``bytes`` or
``Decimal``. It raises :class:`MisfitError` for a value that the type cannot hold exactly, with these exceptions:
fractions in ``float`` and ``double`` columns become the nearest number, fractions of a second beyond microseconds are
cut, and MySQL's zero dates become null.
"""

from __future__ import annotations

import binascii
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from lakecdc.model.tokens import MisfitError, Nested, Number

if TYPE_CHECKING:
    import pyarrow as pa

#: bytes of an integer by type
INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8}
MICROSECONDS_OF_A_DAY = 86_400_000_000
#: years 1 to 9999, in days since 1970
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
_DAY_ZERO = date(1970, 1, 1).toordinal()
#: precision and scale of a decimal type
DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,6}))?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:Z|[T ]00:00(?::00(?:\.0+)?)?Z?)?")
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
    r"(?: ?(Z|[+-][0-9]{2}(?::?[0-9]{2})?))?"
)
_WORDS = {**dict.fromkeys(("true", "t", "yes", "y", "1"), True), **dict.fromkeys(("false", "f", "no", "n", "0"), False)}
_FLOAT_WORDS = {"nan": "nan", **dict.fromkeys(("inf", "infinity", "+inf", "+infinity"), "inf")}
_FLOAT_WORDS |= dict.fromkeys(("-inf", "-infinity"), "-inf")
# no type holds more digits; longer numbers are refused first, because arithmetic on them would take seconds
_MOST_DIGITS = 400
# maximum decimal places of Postgres' numbers
_MOST_PLACES = 16_383
_EXACT = Context(prec=2 * _MOST_DIGITS, traps=[Inexact, InvalidOperation])
# Java's maximum offset from UTC, in hours
_LARGEST_OFFSET = 18
# types that each encoding can have
_ENCODED = {
    "base64": ("binary",),
    "epoch_days": ("date",),
    **dict.fromkeys(("epoch_millis", "epoch_micros", "epoch_nanos"), ("timestamp_ntz", "timestamp")),
    **dict.fromkeys(("time_millis", "time_micros", "time_nanos"), ("string",)),
}
_NANOSECONDS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}
_LONGEST_TIME_OF_DAY = 2**63 - 1

#: converts a token, see :mod:`lakecdc.model.tokens`
Parser = Callable[[Any], Any]


@dataclass(frozen=True)
class ColumnType:
    """Type of a column, and the encoding of its values at the source.

    :param sql_type: Spark SQL type of the table's column.
    :param encoding: ``plain``; ``base64``; ``decimal_bytes`` (unscaled, big-endian, base64); ``variable_decimal`` (an
        object of scale and such bytes); ``epoch_days``, ``epoch_millis``, ``epoch_micros``, ``epoch_nanos``;
        ``time_millis``, ``time_micros``, ``time_nanos`` of a day; ``enum``, ``set`` (the number of one of ``names``, or
        the bits of some).
    :param scale: of ``decimal_bytes``; below 0 it counts zeros at the end of the number that are not written.
    :param names: of ``enum`` and ``set``.
    """

    sql_type: str
    encoding: str = "plain"
    scale: int = 0
    names: tuple[str, ...] = ()

    @property
    def has_parser(self) -> bool:
        """Check whether this encoding of the type has a parser."""
        if arrow_type(self.sql_type) is None:
            return False
        return self.sql_type == "string" if self.names else True

    @property
    def own_type(self) -> str | None:
        """Return the type of the encoding, if the column has another type."""
        if self.names or self.encoding == "plain":
            return None
        if self.encoding in ("decimal_bytes", "variable_decimal"):
            return None if self.sql_type == "string" or DECIMAL.match(self.sql_type) else "string"
        own = _ENCODED[self.encoding]
        return None if self.sql_type in own else own[0]

    def _converted(self, own_type: str) -> Parser:
        """Return a parser for values of another type, which are stored as text."""
        own, plain = replace(self, sql_type=own_type).parser(), replace(self, encoding="plain").parser()

        def parse(value: Any) -> Any:
            parsed = own(value)
            return None if parsed is None else plain(_text_of(parsed, own_type, self.sql_type))

        return parse

    def parser(self) -> Parser:
        """Return the function that converts a token to the column's value; null stays null."""
        if self.names:
            return _not_null(self._named)
        if self.own_type is not None:
            return self._converted(self.own_type)
        by_encoding: dict[str, Callable[[Any], Any]] = {
            "base64": parse_base64,
            "decimal_bytes": self._decimal_bytes,
            "variable_decimal": self._variable_decimal,
            "epoch_days": _epoch_days,
        }
        if self.encoding in by_encoding:
            return _not_null(by_encoding[self.encoding])
        if self.encoding != "plain":
            kind, _, unit = self.encoding.partition("_")
            return _not_null(_epoch(_NANOSECONDS[unit]) if kind == "epoch" else _time_of_day(_NANOSECONDS[unit]))
        return _not_null(self._plain())

    def _plain(self) -> Callable[[Any], Any]:
        if self.sql_type in INTEGER_BYTES:
            return _integer(INTEGER_BYTES[self.sql_type])
        if DECIMAL.match(self.sql_type):
            return self._fitted
        parsers: dict[str, Callable[[Any], Any]] = {
            "float": partial(_float, single=True),
            "double": partial(_float, single=False),
            "boolean": _boolean,
            "string": _text,
            "binary": parse_base64,
            "date": lambda value: parse_date(_iso_text(value)),
            "timestamp": lambda value: parse_timestamp(_iso_text(value), local=False),
            "timestamp_ntz": lambda value: parse_timestamp(_iso_text(value), local=True),
        }
        return parsers[self.sql_type]

    def _fitted(self, value: Any) -> Any:
        """Fit a number into the column: a decimal of its scale, or text without exponent."""
        number = value if isinstance(value, Decimal) else parse_number(value)
        decimal = DECIMAL.match(self.sql_type)
        if decimal is None:
            return f"{number:f}"
        precision, scale = int(decimal[1]), int(decimal[2])
        try:
            fitted = number.quantize(Decimal((0, (1,), -scale)), context=_EXACT)
        except (Inexact, InvalidOperation):
            raise MisfitError(f"{self.sql_type} cannot hold all its digits") from None
        if fitted and fitted.adjusted() >= precision - scale:
            raise MisfitError(f"it is too large for {self.sql_type}")
        return fitted if fitted else abs(fitted)

    def _decimal_bytes(self, value: Any) -> Any:
        # Connect's ``decimal.format`` NUMERIC writes numbers, of which some would pass for base64
        if isinstance(value, int | Number) and not isinstance(value, bool):
            return str(value) if self.sql_type == "string" else self._fitted(value)
        return self._fitted(_unscaled(value, self.scale))

    def _variable_decimal(self, value: Any) -> Any:
        try:
            parts = msgspec.json.decode(
                str(value).encode() if isinstance(value, Nested) else b"", type=_VariableDecimal
            )
        except msgspec.MsgspecError:
            raise MisfitError("Expected an object with scale and value") from None
        return self._fitted(_unscaled(parts.value, parts.scale))

    def _named(self, value: Any) -> str:
        if isinstance(value, bool | Nested):
            raise MisfitError(f"it is not one of {', '.join(self.names)}")
        if isinstance(value, int | Number):
            number = parse_integer(value)
        elif value.isascii() and value.isdigit() and len(value) <= 20:
            number = int(value)
        else:
            return str(value)
        if self.encoding == "enum" and 0 <= number <= len(self.names):
            return ("", *self.names)[number]
        if self.encoding == "set" and 0 <= number < 1 << len(self.names):
            return ",".join(name for bit, name in enumerate(self.names) if number >> bit & 1)
        if str(value) in self.names:
            return str(value)
        raise MisfitError(f"the column has no value of the number {number}")


def _text_of(value: Any, own_type: str, sql_type: str) -> Any:
    """Return the text of a value for a column of another type."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise MisfitError("its bytes are not UTF-8 text") from None
    if own_type == "date":
        return str(date.fromordinal(value + _DAY_ZERO))
    if own_type == "timestamp_ntz":
        seconds, micros = divmod(value, 1_000_000)
        days, seconds = divmod(seconds, 86_400)
        day = str(date.fromordinal(days + _DAY_ZERO))
        if sql_type == "date":
            return day
        fraction = f".{micros:06d}".rstrip("0") if micros else ""
        return f"{day} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
    return Number(value) if own_type == "string" and _NUMBER.fullmatch(value) else value


class _VariableDecimal(msgspec.Struct, forbid_unknown_fields=True):
    scale: int
    value: str


def arrow_type(sql_type: str) -> pa.DataType | None:
    """Return Arrow's type of a Spark SQL type, or None for one without parser."""
    import pyarrow as pa

    decimal = DECIMAL.match(sql_type)
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
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    return known.get(sql_type)


def parse_number(value: Any) -> Decimal:
    """Convert a token to a number.

    :raises MisfitError: it is not a number in ASCII digits, or has more digits than any type holds.
    """
    if isinstance(value, int):
        value = str(int(value))
    match = None if isinstance(value, Nested) else _NUMBER.fullmatch(value)
    if match is None:
        raise MisfitError("it is not a number")
    if len(value) > _MOST_DIGITS or abs(int(match[1] or 0)) > _MOST_DIGITS:
        raise MisfitError("it has more digits than any type holds")
    return Decimal(value)


def parse_integer(value: Any) -> int:
    """Convert a token to a whole number; raise a :class:`MisfitError` for anything else."""
    if isinstance(value, int):
        return int(value)
    number = parse_number(value)
    if number != number.to_integral_value():
        raise MisfitError("it is not a whole number")
    return int(number)


def parse_base64(value: Any) -> bytes:
    """Decode base64 (RFC 4648, padded, without line breaks or unused bits); raise :class:`MisfitError` for others."""
    # numbers and nested values are subclasses
    if type(value) is not str:
        raise MisfitError("it is not text in base64")
    try:
        octets = binascii.a2b_base64(value.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        raise MisfitError("it is not text in base64") from None
    if binascii.b2a_base64(octets, newline=False).decode() != value:
        raise MisfitError("it is not text in base64")
    return octets


def parse_date(text: str) -> int | None:
    """Convert an ISO-8601 date to days since 1970, MySQL's zero date to None.

    :raises MisfitError: it is not a date of the years 1 to 9999, or has a time of day other than midnight.
    """
    if text.startswith("0000-00-00"):
        return None
    match = _DATE.fullmatch(text)
    if match is None:
        raise MisfitError("it is not a date (YYYY-MM-DD)")
    return _days(match)


def parse_timestamp(text: str, *, local: bool) -> int | None:
    """Convert an ISO-8601 time to microseconds since 1970, MySQL's zero date to None.

    Digits beyond microseconds are cut. Without an offset it is in UTC.

    :param local: refuse offsets other than zero, because the column has no time zone.
    :raises MisfitError: it is not a time of the years 1 to 9999.
    """
    if text.startswith("0000-00-00"):
        return None
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise MisfitError("it is not a date and time in ISO-8601")
    hour, minute, second = (int(match[group] or 0) for group in (4, 5, 6))
    if hour > 23 or minute > 59 or second > 59:
        raise MisfitError("its time of day does not exist")
    offset = _offset_minutes(match[8])
    if local and offset:
        raise MisfitError("it has an offset from UTC, which timestamp_ntz cannot hold")
    fraction = int((match[7] or "0")[:6].ljust(6, "0"))
    seconds = (_days(match) * 24 + hour) * 3600 + (minute - offset) * 60 + second
    return _within_years(seconds * 1_000_000 + fraction)


def _not_null(parse: Callable[[Any], Any]) -> Parser:
    def parsed(value: Any) -> Any:
        return None if value is None else parse(value)

    return parsed


def _integer(width: int) -> Callable[[Any], int]:
    low, high = -(1 << 8 * width - 1), (1 << 8 * width - 1) - 1

    def parse(value: Any) -> int:
        number = parse_integer(value)
        if not low <= number <= high:
            raise MisfitError(f"it is not within {low} to {high}")
        return number

    return parse


def _float(value: Any, *, single: bool) -> float:
    if isinstance(value, str) and not isinstance(value, Number) and value.lower() in _FLOAT_WORDS:
        return float(_FLOAT_WORDS[value.lower()])
    number = parse_number(value)
    try:
        nearest = float(struct.unpack("<f", struct.pack("<f", float(number)))[0]) if single else float(number)
    except OverflowError:
        nearest = math.inf
    if math.isinf(nearest) or (number and not nearest):
        raise MisfitError(f"its size is out of a {'float' if single else 'double'}'s range")
    # a source that writes integers does not expect their last digits to change, unlike one that writes doubles
    is_whole = not single and str(value).lstrip("+-").isdigit()
    if is_whole and number not in (Decimal(nearest), Decimal(repr(nearest))):
        raise MisfitError("a double cannot hold its last digits")
    return nearest if number else float(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | Number):
        number = parse_number(value)
        if number in (0, 1):
            return bool(number)
    elif not isinstance(value, Nested) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise MisfitError("it is not true, false, 0 or 1")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _iso_text(value: Any) -> str:
    if isinstance(value, int | Number | Nested):
        raise MisfitError("Expected a date or time as text")
    return str(value)


def _days(match: re.Match[str]) -> int:
    try:
        return date(int(match[1]), int(match[2]), int(match[3])).toordinal() - _DAY_ZERO
    except ValueError as error:
        raise MisfitError(str(error)) from None


def _offset_minutes(text: str | None) -> int:
    if text is None or text == "Z":
        return 0
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or 0)
    if minutes > 59 or hours * 60 + minutes > _LARGEST_OFFSET * 60:
        raise MisfitError("its offset from UTC does not exist")
    return (hours * 60 + minutes) * (-1 if text[0] == "-" else 1)


def _within_years(micros: int) -> int:
    if not FIRST_DAY * MICROSECONDS_OF_A_DAY <= micros < (LAST_DAY + 1) * MICROSECONDS_OF_A_DAY:
        raise MisfitError("it is not within the years 1 to 9999")
    return micros


def _epoch_days(value: Any) -> int:
    days = parse_integer(value)
    if not FIRST_DAY <= days <= LAST_DAY:
        raise MisfitError("it is not within the years 1 to 9999")
    return days


def _epoch(nanoseconds: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        return _within_years(_micros(value, nanoseconds))

    return parse


def _time_of_day(nanoseconds: int) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        micros = _micros(value, nanoseconds)
        if abs(micros) > _LONGEST_TIME_OF_DAY:
            raise MisfitError("it is longer than any time of day")
        # MySQL's times may be negative or longer than a day
        seconds, fraction = divmod(abs(micros), 1_000_000)
        sign = "-" if micros < 0 else ""
        return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"

    return parse


def _micros(value: Any, nanoseconds: int) -> int:
    """Return microseconds, rounded towards zero."""
    if isinstance(value, bool):
        raise MisfitError("it is not a number")
    number = parse_integer(value) * nanoseconds
    return number // 1000 if number >= 0 else -(-number // 1000)


def _unscaled(value: Any, scale: int) -> Decimal:
    octets = parse_base64(value)
    if not octets or len(octets) > _MOST_DIGITS // 3 or abs(scale) > _MOST_PLACES:
        raise MisfitError("it is not a number that any type holds")
    number = int.from_bytes(octets, "big", signed=True)
    return Decimal(number).scaleb(-scale, context=_EXACT)
