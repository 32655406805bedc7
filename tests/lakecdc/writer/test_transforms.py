"""Partition values equal Iceberg's, which pyiceberg computes value by value."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from lakecdc.writer.transforms import Transform, parse_transform

_LONGS = st.integers(-(2**63), 2**63 - 1)
_DATES = st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))
_LONG_DECIMALS = st.integers(1 - 10**37, 10**38 - 1).map(
    lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -10))
)
#: values of each type as tasks have them, with pyiceberg's type
VALUES: dict[str, tuple[IcebergType, pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (IntegerType(), pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "bigint": (LongType(), pa.int64(), _LONGS),
    "string": (StringType(), pa.string(), st.text()),
    "binary": (BinaryType(), pa.binary(), st.binary()),
    "date": (DateType(), pa.date32(), _DATES),
    "timestamp_ntz": (TimestampType(), pa.timestamp("us"), st.datetimes()),
    "decimal(5,2)": (DecimalType(5, 2), pa.decimal128(5, 2), st.decimals(-999, 999, places=2)),
    "decimal(38,10)": (DecimalType(38, 10), pa.decimal128(38, 10), _LONG_DECIMALS),
}
TRANSFORMS: dict[str, Any] = {
    "bucket": BucketTransform(16),
    "truncate": TruncateTransform(7),
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
CASES = [
    (kind, sql_type)
    for kind in TRANSFORMS
    for sql_type in VALUES
    if Transform(kind, "c").takes(sql_type)
]  # fmt: skip


@pytest.mark.parametrize(("kind", "sql_type"), CASES)
@given(data=st.data())
def test_values_equal_icebergs(kind: str, sql_type: str, data: st.DataObject) -> None:
    iceberg, arrow, strategy = VALUES[sql_type]
    values = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=20))
    column = pa.array(values, arrow)
    plain = column.cast({"date": pa.int32(), "timestamp_ntz": pa.int64()}.get(sql_type, arrow)).to_pylist()
    theirs = TRANSFORMS[kind].transform(iceberg)
    transformed = Transform(kind, "c", {"bucket": 16, "truncate": 7}.get(kind, 0)).values(column)
    ours = transformed.cast(pa.int32()).to_pylist() if kind == "day" else transformed.to_pylist()
    assert ours == [None if value is None else _wrapped(theirs(value), sql_type) for value in plain]


def _wrapped(value: Any, sql_type: str) -> Any:
    """Return the value in Java's integers, which wrap around."""
    bits = {"int": 32, "bigint": 64}.get(sql_type)
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) if bits else value


def test_small_integers_are_transformed_as_integers() -> None:
    transformed = Transform("truncate", "c", 1000).values(pa.array([-128, 127, None], pa.int8()))
    assert (transformed.type, transformed.to_pylist()) == (pa.int32(), [-1000, 0, None])
    theirs = BucketTransform(4).transform(LongType())(-3)
    assert Transform("bucket", "c", 4).values(pa.array([-3], pa.int8())).to_pylist() == [theirs]


def test_timestamps_may_be_integers_of_microseconds() -> None:
    assert Transform("day", "c").values(pa.array([-1, None], pa.int64())).to_pylist() == [
        datetime.date(1969, 12, 31),
        None,
    ]


@pytest.mark.parametrize(
    ("kind", "sql_types"),
    [
        ("identity", ["double", "float"]),
        ("truncate", ["date", "boolean"]),
        ("bucket", ["boolean", "double"]),
        ("hour", ["date", "int"]),
        ("day", ["string"]),
    ],
)
def test_unsupported_types_are_left_to_iceberg(kind: str, sql_types: list[str]) -> None:
    assert not any(Transform(kind, "c", 3).takes(sql_type) for sql_type in sql_types)


@pytest.mark.parametrize(
    ("expression", "transform"),
    [
        ("`lake`.system.bucket(16, `id`)", Transform("bucket", "id", 16)),
        ("TRUNCATE( 4 , name )", Transform("truncate", "name", 4)),
        ("`lake`.system.days(`a``b`)", Transform("day", "a`b")),
        ("hour(at)", Transform("hour", "at")),
        ("date(at)", Transform("day", "at")),
        ("date_hour(at)", Transform("hour", "at")),
        ("identity(region)", Transform("identity", "region")),
        ("`re gion`", Transform("identity", "re gion")),
        ("region", Transform("identity", "region")),
        ("a.b", None),
        ("`a`.`b`", None),
        ("bucket(4, a.b)", None),
    ],
)
def test_transforms_are_parsed_in_sparks_notation(expression: str, transform: Transform | None) -> None:
    assert parse_transform(expression) == transform
