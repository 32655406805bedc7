"""Convert the values of a column to Arrow: all at once if all are in the usual form, else one by one.

Both give the same values as the column's parser (:mod:`lakecdc.model.columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.model.columns import (
    DECIMAL,
    FIRST_DAY,
    INTEGER_BYTES,
    LAST_DAY,
    MICROSECONDS_OF_A_DAY,
    ColumnType,
    arrow_type,
    parse_base64,
)
from lakecdc.model.tokens import MisfitError, Number, as_token

#: converts parsed JSON values to Arrow; returns None if some are not in the usual form
Quick = Callable[[Sequence[Any]], "pa.Array | None"]

_REFUSED = (pa.ArrowException, OverflowError, TypeError, ValueError)
# years 0001 to 9999
_DATE = r"(?:\d{3}[1-9]|\d\d[1-9]\d|\d[1-9]\d\d|[1-9]\d{3})-\d\d-\d\d"
_MOMENT = rf"^{_DATE}[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{{1,6}})?"
_WHOLE = r"^(?:0|-?[1-9]\d{0,17})$"
_MICROS = {"epoch_millis": 1_000, "epoch_micros": 1}
# a double holds every whole number up to this
_EXACT_INTEGERS = 1 << 53
# the range of a float, with room for rounding of the last digit
_SMALLEST_FLOAT, _LARGEST_FLOAT = 1e-37, 3.4e38


class ArrowColumn:
    """A column whose values are converted to Arrow."""

    def __init__(self, type: ColumnType) -> None:
        arrow = arrow_type(type.sql_type)
        if arrow is None:
            raise KeyError(type.sql_type)
        self.type, self.arrow = type, arrow
        self._quick, self._parse = _find_quick(type, arrow), type.parser()

    def convert(self, values: Sequence[Any]) -> tuple[pa.Array, list[int]]:
        """Convert values (None, bool, int, text, :class:`Number`, lists and objects) to Arrow.

        :return: the values, null where one does not fit, and the indexes of misfits.
        """
        try:
            quick = self._quick(values)
        except _REFUSED:
            quick = None
        if quick is not None:
            return quick, []
        return self._one_by_one(values)

    def _one_by_one(self, values: Sequence[Any]) -> tuple[pa.Array, list[int]]:
        parsed: list[Any] = []
        misfits = []
        for place, value in enumerate(values):
            try:
                parsed.append(self._parse(as_token(value)))
            except MisfitError:
                parsed.append(None)
                misfits.append(place)
        try:
            return pa.array(parsed, self.arrow), misfits
        except _REFUSED:
            # a value that Arrow refuses must not affect the others
            refused = [place for place, value in enumerate(parsed) if not self._fits(value)]
            for place in refused:
                parsed[place] = None
            return pa.array(parsed, self.arrow), sorted({*misfits, *refused})

    def _fits(self, value: Any) -> bool:
        try:
            pa.scalar(value, self.arrow)
        except _REFUSED:
            return False
        return True


def _find_quick(column: ColumnType, arrow: pa.DataType) -> Quick:
    """Return the fast conversion of values in the usual form."""
    decimal = DECIMAL.match(column.sql_type)
    if column.names or column.own_type is not None or column.encoding.startswith("time_"):
        return _none
    if column.encoding == "decimal_bytes" and decimal:
        return _scaled_decimals(arrow, int(decimal[1]), int(decimal[2]) - column.scale)
    if column.encoding == "epoch_days":
        return _days
    if column.encoding in _MICROS:
        return _epoch(arrow, _MICROS[column.encoding])
    if column.encoding == "base64" or column.sql_type == "binary":
        return _octets
    if column.encoding != "plain":
        return _none
    if column.sql_type in INTEGER_BYTES:
        return _integers(arrow)
    if column.sql_type in ("string", "boolean"):
        return lambda values: pa.array(values, arrow)
    if decimal:
        return _decimals(arrow, int(decimal[1]), int(decimal[2]))
    if column.sql_type in ("float", "double"):
        return _floats(arrow)
    # no number looks like a date, so that only texts match
    zone = "Z$" if column.sql_type == "timestamp" else "$"
    pattern = rf"^{_DATE}$" if column.sql_type == "date" else _MOMENT + zone
    return _matching(pattern, arrow, partial(pa.array, type=pa.string()))


def _none(values: Sequence[Any]) -> None:
    return None


def _texts(values: Sequence[Any]) -> pa.Array:
    """Return texts, and numbers as their text; refuse bool, lists and objects."""
    return pa.array([str(value) if type(value) is int else value for value in values], pa.string())


def _integers(arrow: pa.DataType) -> Quick:
    def quick(values: Sequence[Any]) -> pa.Array | None:
        try:
            return pa.array(values, arrow)
        except _REFUSED:
            texts = _texts(values)
            return texts.cast(arrow) if _all(pc.match_substring_regex(texts, _WHOLE)) else None

    return quick


def _matching(pattern: str, arrow: pa.DataType, to_texts: Callable[[Sequence[Any]], pa.Array]) -> Quick:
    def quick(values: Sequence[Any]) -> pa.Array | None:
        texts = to_texts(values)
        return texts.cast(arrow) if _all(pc.match_substring_regex(texts, pattern)) else None

    return quick


def _decimals(arrow: pa.DataType, precision: int, scale: int) -> Quick:
    whole, places = rf"\d{{1,{max(1, precision - scale)}}}", rf"(?:\.\d{{1,{scale}}})?" if scale else ""
    pattern = f"^-?{whole if precision > scale else '0'}{places}$"

    return _matching(pattern, arrow, _texts)


def _scaled_decimals(arrow: pa.DataType, precision: int, more: int) -> Quick:
    """Return the conversion of unscaled base64 numbers, if the column has ``more`` decimal places than these."""
    factor, limit = 10 ** max(more, 0), 10**precision

    def quick(values: Sequence[Any]) -> pa.Array | None:
        if more < 0:
            return None
        octets, validity = bytearray(), []
        for value in values:
            validity.append(value is not None)
            number = 0 if value is None else int.from_bytes(parse_base64(value), "big", signed=True) * factor
            if not -limit < number < limit or value == "":
                return None
            octets += number.to_bytes(16, "little", signed=True)
        mask = pa.array(validity, pa.bool_()).buffers()[1]
        return pa.Array.from_buffers(arrow, len(validity), [mask, pa.py_buffer(octets)])

    return quick


def _octets(values: Sequence[Any]) -> pa.Array:
    return pa.array([None if value is None else parse_base64(value) for value in values], pa.binary())


def _days(values: Sequence[Any]) -> pa.Array | None:
    days = pa.array(values, pa.int32())
    return days.cast(pa.date32()) if _within(days, FIRST_DAY, LAST_DAY) else None


def _epoch(arrow: pa.DataType, micros: int) -> Quick:
    low, high = FIRST_DAY * MICROSECONDS_OF_A_DAY, (LAST_DAY + 1) * MICROSECONDS_OF_A_DAY - 1

    def quick(values: Sequence[Any]) -> pa.Array | None:
        numbers = pa.array(values, pa.int64())
        if not _within(numbers, -(-low // micros), high // micros):
            return None
        return pc.multiply(numbers, micros).cast(arrow)

    return quick


def _floats(arrow: pa.DataType) -> Quick:
    is_float = pa.types.is_float32(arrow)

    def quick(values: Sequence[Any]) -> pa.Array | None:
        if any(not _is_number(value) for value in values):
            return None
        numbers = pa.array([None if value is None else float(value) for value in values], pa.float64())
        size = pc.abs(numbers)
        low, high = (_SMALLEST_FLOAT, _LARGEST_FLOAT) if is_float else (5e-324, 1.7976931348623157e308)
        if not _all(pc.and_(pc.greater_equal(size, low), pc.less_equal(size, high))):
            return None
        return numbers.cast(arrow)

    return quick


def _is_number(value: Any) -> bool:
    """Check whether a token is a number that may become a double: a fraction, or an integer that a double holds."""
    if type(value) is int:
        return -_EXACT_INTEGERS <= value <= _EXACT_INTEGERS
    return value is None or (type(value) is Number and not value.lstrip("-").isdigit())


def _within(numbers: pa.Array, low: int, high: int) -> bool:
    bounds = pc.min_max(numbers)
    return bounds["min"].as_py() is None or (low <= bounds["min"].as_py() and bounds["max"].as_py() <= high)


def _all(conditions: pa.Array) -> bool:
    """Check whether all conditions are true or null."""
    return pc.all(conditions, min_count=0).as_py() is not False
