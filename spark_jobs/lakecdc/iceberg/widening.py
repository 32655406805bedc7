"""Types as they change at a source: what a column can be widened to, what it holds as it is, what holds two types.

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
    """Whether Iceberg can widen a column from one type to the other."""
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if before and after:
        return before[2] == after[2] and int(after[1]) > int(before[1])
    return (old, new) in _WIDER


def holds(column: str, source: str) -> bool:
    """Whether a column can stay as it is with values of a type of the source, which it holds exactly or rejects.

    :param column: its type; one that no source tells, such as a struct, was chosen by people and stays.
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
    """The type that holds the values of both, whichever comes first."""
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
    """Digits before and after the point of an exact number; None of any other type."""
    decimal = _DECIMAL.fullmatch(kind)
    if decimal:
        return int(decimal[1]) - int(decimal[2]), int(decimal[2])
    return (_INTEGERS[kind], 0) if kind in _INTEGERS else None


def no_change(table: str, column: str, old: str, new: str) -> InputError:
    """The error of a column that Iceberg cannot change as the source has done."""
    return InputError(
        f"The source's column {column!r} is {new} now, the table's is {old}; Iceberg cannot change one into the other.",
        table=table,
        hint="Give the column a fixed type in the target's columns, exclude it, or load the table anew.",
        column=column,
    )
