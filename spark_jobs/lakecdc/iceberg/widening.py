"""Type changes at a source: widening of columns, compatible types, and common types.

All types are Spark SQL's, by name.
"""

from __future__ import annotations

import re

from lakecdc.contract.errors import InputError

_WIDER = {("int", "bigint"), ("smallint", "int"), ("smallint", "bigint"), ("float", "double")}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_MOST_DIGITS = 38
# digits of the longest number
_INTEGERS = {"smallint": 5, "int": 10, "bigint": 19}
_NUMBERS = (*_INTEGERS, "float", "double")
_SIMPLE = (*_NUMBERS, "tinyint", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")


def is_wider(old: str, new: str) -> bool:
    """Check whether Iceberg can widen a column from one type to the other."""
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if before and after:
        return before[2] == after[2] and int(after[1]) > int(before[1])
    return (old, new) in _WIDER


def holds(column: str, source: str) -> bool:
    """Check whether a column can stay unchanged for values of a source type, which it stores exactly or rejects.

    A column of a type that no source reports, such as a struct, was chosen by users and stays.
    """
    is_plain = column in _SIMPLE or _DECIMAL.fullmatch(column)
    if column in (source, "string") or not is_plain or is_wider(source, column):
        return True
    if column == "double":
        return source in _NUMBERS
    if column in ("timestamp", "timestamp_ntz"):
        return source in ("date", "timestamp", "timestamp_ntz")
    return bool(_DECIMAL.fullmatch(column)) and common(column, source) == column


def common(one: str, other: str) -> str:
    """Return the type that holds the values of both, whichever comes first."""
    if one == other or is_wider(other, one):
        return one
    if is_wider(one, other):
        return other
    if {one, other} <= {*_NUMBERS}:
        return "double"
    digits = [_digits(kind) for kind in (one, other)]
    (whole, places), (more_whole, more_places) = (d or (_MOST_DIGITS, 1) for d in digits)
    whole, places = max(whole, more_whole), max(places, more_places)
    return f"decimal({whole + places},{places})" if whole + places <= _MOST_DIGITS else "string"


def _digits(kind: str) -> tuple[int, int] | None:
    """Return the digits before and after the point of an exact number; None for any other type."""
    decimal = _DECIMAL.fullmatch(kind)
    if decimal:
        return int(decimal[1]) - int(decimal[2]), int(decimal[2])
    return (_INTEGERS[kind], 0) if kind in _INTEGERS else None


def no_change(table: str, column: str, old: str, new: str) -> InputError:
    """Create the error for a column that Iceberg cannot change like the source."""
    return InputError(
        f"Cannot change column {column!r} from {old} to {new} like the source: Iceberg does not support it.",
        table=table,
        hint="Give the column a fixed type in the target's columns, exclude it, or reload the table in full.",
        column=column,
    )
