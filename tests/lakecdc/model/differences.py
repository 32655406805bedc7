"""Deliberate differences from the values of the SQL engine, which the corpus records."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from lakecdc.model.columns import INTEGER_BYTES, ColumnType

#: marks a value that does not fit
MISFIT: dict[str, Any] = {}
_NUMBERS = ("decimal", "float", "double", *INTEGER_BYTES)


@dataclass(frozen=True)
class Case:
    """A value on which the parser and the SQL engine disagree.

    :param json: the value.
    :param ours: what the parser makes of it, as Spark casts it to text.
    :param theirs: what the SQL engine made of it.
    """

    column: ColumnType
    json: str
    ours: Any
    theirs: Any

    @property
    def refused(self) -> bool:
        """Return whether only the parser refuses it."""
        return self.ours == MISFIT

    @property
    def accepted(self) -> bool:
        """Return whether only the parser accepts it."""
        return self.theirs == MISFIT

    @property
    def is_text(self) -> bool:
        """Return whether it is a JSON string."""
        return self.json.startswith('"')

    @property
    def text(self) -> str:
        """Return the string's content, or the JSON itself."""
        return str(json.loads(self.json)) if self.is_text else self.json

    def is_column(self, sql_type: str, *encodings: str) -> bool:
        """Return whether its column has this type and one of these encodings, by default any."""
        return self.column.sql_type == sql_type and (not encodings or self.column.encoding in encodings)


def _is_rounded(case: Case) -> bool:
    digits = case.text.lstrip("-")
    return digits.isdigit() and Decimal(case.text) != Decimal(float(case.text))


DIFFERENCES: dict[str, Callable[[Case], bool]] = {
    "a number in a text column keeps its own text": lambda case: (
        case.is_column("string", "plain", "decimal_bytes") and case.ours == case.json
    ),
    "objects and arrays in a text column keep their members' order and their numbers' text": lambda case: (
        case.is_column("string", "plain") and case.json[0] in "{["
    ),
    "text of a whole number may have a point or an exponent": lambda case: (
        case.accepted and case.is_text and any(sign in case.text for sign in ".eE") and not case.column.names
    ),
    "a number other than zero does not become zero": lambda case: case.refused and case.text == "1e-400",
    "a number does not become infinite": lambda case: case.refused and case.json == "1e309",
    "a double holds all digits of an integer": lambda case: (
        case.refused and case.is_column("double") and _is_rounded(case)
    ),
    "a double takes integers beyond 64 bits that it holds": lambda case: (
        case.accepted and case.is_column("double") and not _is_rounded(case)
    ),
    "no fraction is cut from an integer": lambda case: case.refused and case.is_column("bigint") and "." in case.json,
    "false is 0 and true is 1 in all columns of numbers": lambda case: (
        case.accepted and case.json in ("true", "false") and case.column.sql_type.startswith(_NUMBERS)
    ),
    "blanks around a value are not ignored": lambda case: case.refused and case.text != case.text.strip(),
    "only ASCII digits are digits": lambda case: case.refused and not case.text.isascii(),
    "base64 is text, padded, and without unused bits": lambda case: (
        case.refused and (case.is_column("binary") or case.column.encoding == "decimal_bytes")
    ),
    "an unscaled number may have more than 16 bytes": lambda case: (
        case.accepted and case.column.encoding == "decimal_bytes"
    ),
    "a scale may be negative": lambda case: '"scale": -2' in case.json,
    "only an object of scale and text is a decimal of variable scale": lambda case: (
        case.refused and case.column.encoding == "variable_decimal"
    ),
    "numbers of days and moments are whole": lambda case: (
        case.refused and case.column.encoding.startswith(("epoch", "time")) and not case.is_text
    ),
    "nanoseconds may need more than 64 bits": lambda case: case.accepted and case.column.encoding.endswith("nanos"),
    "a date has a month and a day of two digits": lambda case: case.refused and case.text in ("2026-1-1", "2026-01"),
    "a date in UTC is a moment": lambda case: case.accepted and case.text == "2026-01-01Z",
    "an offset from UTC is a number": lambda case: case.refused and case.text.endswith("Europe/Berlin"),
    "a moment is within the years 1 to 9999 in UTC": lambda case: (
        case.refused and case.is_column("timestamp") and case.text.startswith(("0001", "9999"))
    ),
    "an offset from UTC is not dropped": lambda case: (
        case.refused and case.is_column("timestamp_ntz") and any(sign in case.text[19:] for sign in "+-")
    ),
    "a number in a column of names is one of them": lambda case: bool(case.column.names),
}
