"""Compute Iceberg's partition transforms (table specification, "Partition Transforms" and appendix B) by column."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.model.columns import DECIMAL, INTEGER_BYTES

_NAME = r"`(?:[^`]++|``)++`|\w++"
_IDENTITY = re.compile(rf"(?:identity\(\s*+)?({_NAME})\s*+\)?", re.IGNORECASE)
_SIZED = re.compile(rf"(bucket|truncate)\(\s*+(\d{{1,10}})\s*+,\s*+({_NAME})\s*+\)", re.IGNORECASE)
_TIMED = re.compile(rf"(year|month|day|hour|date|date_hour)s?\(\s*+({_NAME})\s*+\)", re.IGNORECASE)
# synonyms in Iceberg's Spark parser
_SAME = {"date": "day", "date_hour": "hour"}
# numpy's names of these units
_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_MOMENTS = ("timestamp", "timestamp_ntz")
_TIMES = ("date", *_MOMENTS)
_INTEGERS = tuple(INTEGER_BYTES)
# Python's default context has 28 digits
_EXACT = Context(prec=80, traps=[Inexact])


@dataclass(frozen=True)
class Transform:
    """A transform of one column.

    :param kind: Iceberg's name of it: ``identity``, ``bucket``, ``truncate``, ``year``, ``month``, ``day``, ``hour``.
    :param width: number of buckets, or width of ``truncate``; 0 for the others.
    """

    kind: str
    column: str
    width: int = 0

    def takes(self, sql_type: str) -> bool:
        """Check whether tasks can evaluate the transform for a Spark SQL type; floats have no exact partitions."""
        decimal = DECIMAL.match(sql_type) is not None
        if self.kind == "identity":
            return decimal or sql_type in (*_INTEGERS, *_TIMES, "string", "binary", "boolean")
        if self.kind == "truncate":
            return decimal or sql_type in (*_INTEGERS, "string", "binary")
        if self.kind == "bucket":
            return decimal or sql_type in (*_INTEGERS, *_TIMES, "string", "binary")
        return sql_type in (_MOMENTS if self.kind == "hour" else _TIMES)

    def values(self, column: pa.Array) -> pa.Array:
        """Return the partition value of each value, null for null.

        :param column: of a supported type; except for identity, times may be integers (microseconds since 1970).
        :return: days as dates; buckets and the other units as 32-bit integers.
        """
        if self.kind == "identity":
            return column
        if self.kind == "bucket":
            return _buckets(column, self.width)
        if self.kind == "truncate":
            return _truncated(column, self.width)
        return _units(column, self.kind)


def parse_transform(expression: str) -> Transform | None:
    """Parse a transform such as ``bucket(8, id)`` or ``lake.system.days(at)``; return None for a nested column."""
    text = expression.rpartition(".system.")[2].strip()
    if match := _SIZED.fullmatch(text):
        return Transform(match[1].lower(), _unquoted(match[3]), int(match[2]))
    if match := _TIMED.fullmatch(text):
        kind = match[1].lower()
        return Transform(_SAME.get(kind, kind), _unquoted(match[2]))
    match = _IDENTITY.fullmatch(text)
    return Transform("identity", _unquoted(match[1])) if match else None


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _units(column: pa.Array, kind: str) -> pa.Array:
    """Return each time's number of units since 1970."""
    is_date = pa.types.is_date(column.type)
    raw = column.cast(pa.int32()).cast(pa.int64()) if is_date else column.cast(pa.int64())
    numbers = raw.fill_null(0).to_numpy().astype(f"M8[{'D' if is_date else 'us'}]").astype(f"M8[{_UNITS[kind]}]")
    units = _where_valid(column, pa.array(numbers.astype(np.int64).astype(np.int32)))
    return units.cast(pa.date32()) if kind == "day" else units


def _truncated(column: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    if pa.types.is_binary(column.type):
        return pc.binary_slice(column, 0, width)
    if pa.types.is_decimal(column.type):
        scale = column.type.scale
        unscaled = (None if value is None else _unscaled(value, scale) for value in column.to_pylist())
        lower = [
            None if number is None else Decimal(number - number % width).scaleb(-scale, _EXACT) for number in unscaled
        ]
        # the lowest values may have one digit more than their type
        return pa.array(lower, pa.decimal128(38, scale))
    # Iceberg has no integers below 32 bits
    kind = np.int64 if pa.types.is_int64(column.type) else np.int32
    numbers = column.fill_null(0).to_numpy().astype(np.int64)
    return _where_valid(column, pa.array((numbers - numbers % width).astype(kind)))


def _buckets(column: pa.Array, count: int) -> pa.Array:
    """Return the bucket of each value, by Murmur3 (x86, 32 bits, seed 0) of its bytes."""
    import mmh3

    hashes = (0 if value is None else mmh3.hash(value, 0, False) for value in _hashed_bytes(column))
    buckets = (np.fromiter(hashes, np.int64, len(column)) & 0x7FFFFFFF) % count
    return _where_valid(column, pa.array(buckets.astype("int32")))


def _hashed_bytes(column: pa.Array) -> Iterable[Any]:
    """Return the bytes of each value to hash: of texts, bytes and unscaled decimals; of numbers 8, little endian."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return column.to_pylist()
    if pa.types.is_decimal(column.type):
        unscaled = (None if value is None else _unscaled(value, column.type.scale) for value in column.to_pylist())
        return (None if number is None else _signed_bytes(number) for number in unscaled)
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy()
    return np.ascontiguousarray(numbers, "<i8").view("V8").tolist()


def _unscaled(value: Decimal, scale: int) -> int:
    return int(value.scaleb(scale, _EXACT))


def _signed_bytes(number: int) -> bytes:
    """Return the shortest two's complement of a number, big endian."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _where_valid(column: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), values, pa.scalar(None, values.type)) if column.null_count else values
