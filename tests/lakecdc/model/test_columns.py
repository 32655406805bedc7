"""Values of every type and encoding, compared with the SQL engine and with Python's types."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecdc.ingest.envelopes.json_values import UnreadableError, parse_json
from lakecdc.model.arrow_columns import ArrowColumn
from lakecdc.model.columns import INTEGER_BYTES, ColumnType, arrow_type
from lakecdc.model.tokens import MisfitError, as_token
from tests.lakecdc.model.corpus import VALUES
from tests.lakecdc.model.differences import DIFFERENCES, MISFIT, Case

GOLDEN = json.loads(Path(__file__).with_name("values_of_the_sql_engine.json").read_text())
EPOCH = datetime(1970, 1, 1)


def parsed(column: ColumnType, text: str) -> Any:
    """Return the parsed JSON value, MISFIT if it does not fit."""
    try:
        return column.parser()(as_token(parse_json(text)))
    except (MisfitError, UnreadableError):
        return MISFIT


def cases(golden: dict[str, Any]) -> Iterator[Case]:
    """Yield the values of one column that differ from those of the SQL engine."""
    column = ColumnType(golden["type"], golden["encoding"], golden["scale"], tuple(golden["names"]))
    for text, theirs in zip(VALUES, golden["values"], strict=True):
        ours = shown(column, parsed(column, text))
        if not same(column, ours, theirs):
            yield Case(column, text, ours, theirs)


def shown(column: ColumnType, value: Any) -> Any:
    """Return a value as Spark casts it to text, floating-point numbers unchanged."""
    if value is None or value is MISFIT or column.sql_type in ("float", "double"):
        return value
    if column.sql_type == "date":
        return str((EPOCH + timedelta(days=value)).date())
    if column.sql_type.startswith("timestamp"):
        moment = EPOCH + timedelta(microseconds=value)
        seconds = f"{moment:%Y-%m-%d %H:%M:%S}".rjust(19, "0")
        return seconds + (f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else "")
    if column.sql_type == "binary":
        return b64encode(value).decode()
    return (
        str(value).lower()
        if column.sql_type == "boolean"
        else f"{value:f}"
        if isinstance(value, Decimal)
        else str(value)
    )


def same(column: ColumnType, ours: Any, theirs: Any) -> bool:
    """Return whether a value equals that of the SQL engine."""
    if column.sql_type not in ("float", "double") or not isinstance(ours, float) or not isinstance(theirs, str):
        return bool(ours == theirs)
    expected = float(theirs)
    if column.sql_type == "float" and abs(expected) < 3.41e38:
        (expected,) = struct.unpack("f", struct.pack("f", expected))
    return ours == expected or (ours != ours and expected != expected)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda each: f"{each['type']}-{each['encoding']}-{each['scale']}")
def test_values_equal_those_of_the_sql_engine(golden: dict[str, Any]) -> None:
    unexplained = [case for case in cases(golden) if not any(rule(case) for rule in DIFFERENCES.values())]
    assert unexplained == []


def test_every_difference_occurs() -> None:
    differing = [case for golden in GOLDEN for case in cases(golden)]
    assert [name for name, rule in DIFFERENCES.items() if not any(map(rule, differing))] == []


COLUMNS = [ColumnType(each["type"], each["encoding"], each["scale"], tuple(each["names"])) for each in GOLDEN]
_HUGE = ["9" * 5000, "-" + "9" * 5000, "1e300000", "1e2000000", "1e-2000000", "1" + "0" * 399, "0." + "0" * 5000 + "1"]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda each: f"{each.sql_type}-{each.encoding}-{each.scale}")
def test_arrow_accepts_all_parsed_values(column: ColumnType) -> None:
    texts = [*VALUES, *_HUGE, *(json.dumps(text) for text in _HUGE), '"\\ud800"', "[" * 400 + "]" * 400]
    values = [value for text in texts if (value := parsed(column, text)) is not MISFIT]
    array = pa.array(values, arrow_type(column.sql_type))
    assert array.null_count == values.count(None)
    if column.sql_type.startswith("decimal"):
        assert array.to_pylist() == values


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(COLUMNS), JSON)
def test_any_value_fits_or_is_a_misfit(column: ColumnType, value: Any) -> None:
    result = parsed(column, json.dumps(value))
    if result is not MISFIT:
        pa.array([result], arrow_type(column.sql_type))


@given(st.sampled_from(sorted(INTEGER_BYTES)), st.integers(-(2**65), 2**65))
def test_integers_fit_by_their_bounds_alone(kind: str, number: int) -> None:
    bits = 8 * INTEGER_BYTES[kind]
    expected = number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else MISFIT
    assert parsed(ColumnType(kind), str(number)) == parsed(ColumnType(kind), f'"{number}"') == expected


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**30), max_value=10**30))
def test_decimals_keep_every_digit_or_do_not_fit(number: Decimal) -> None:
    assert parsed(ColumnType("decimal(38,6)"), f"{number:f}") == number
    narrow = parsed(ColumnType("decimal(10,2)"), f'"{number:f}"')
    fits = abs(number) < 10**8 and number == number.quantize(Decimal("0.01"))
    assert narrow == (number if fits else MISFIT)


@given(st.integers(-(10**37), 10**37), st.integers(-20, 20))
def test_unscaled_numbers_keep_their_scale(unscaled: int, scale: int) -> None:
    octets = b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()
    expected = f"{Decimal(f'{unscaled}e{-scale}'):f}"
    assert parsed(ColumnType("string", "decimal_bytes", scale), f'"{octets}"') == expected
    assert parsed(ColumnType("string", "variable_decimal"), json.dumps({"scale": scale, "value": octets})) == expected


@given(st.datetimes())
def test_times_equal_those_of_python(moment: datetime) -> None:
    micros = (moment - EPOCH) // timedelta(microseconds=1)
    for text in (moment.isoformat(), moment.isoformat(" "), moment.isoformat() + "Z"):
        assert parsed(ColumnType("timestamp_ntz"), f'"{text}"') == micros
        assert parsed(ColumnType("timestamp"), f'"{text}"') == micros
    assert parsed(ColumnType("timestamp", "epoch_micros"), str(micros)) == micros
    assert (
        parsed(
            ColumnType("date"), f'"{moment:%Y}-{moment:%m-%d}"'.replace('"', '"' + "0" * (4 - len(f"{moment:%Y}")), 1)
        )
        == (moment.date() - EPOCH.date()).days
    )


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC)), st.integers(-1080, 1080))
def test_offsets_are_taken_into_account(moment: datetime, minutes: int) -> None:
    local = (moment + timedelta(minutes=minutes)).replace(tzinfo=None).isoformat()
    sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
    micros = (moment.replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)
    assert parsed(ColumnType("timestamp"), f'"{local}{sign}{hours:02d}:{rest:02d}"') == micros


@given(st.binary(max_size=40))
def test_bytes_survive_base64(octets: bytes) -> None:
    assert parsed(ColumnType("binary", "base64"), f'"{b64encode(octets).decode()}"') == octets


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_are_the_nearest_number(number: float) -> None:
    assert parsed(ColumnType("double"), repr(number)) == number


@pytest.mark.parametrize(
    ("sql_type", "encoding", "value", "expected"),
    [
        ("string", "epoch_days", 19782, "2024-02-29"),
        ("timestamp", "epoch_days", 1, 86_400_000_000),
        ("string", "epoch_millis", -1, "1969-12-31 23:59:59.999"),
        ("string", "epoch_micros", 60_000_000, "1970-01-01 00:01:00"),
        ("date", "epoch_millis", -1, -1),
        ("string", "base64", "w6k=", "é"),
        ("double", "decimal_bytes", "BNI=", 12.34),
        ("bigint", "decimal_bytes", "ZA==", 1),
        ("string", "epoch_days", None, None),
    ],
)
def test_columns_with_another_type_than_their_encoding_are_cast(
    sql_type: str, encoding: str, value: Any, expected: Any
) -> None:
    column = ColumnType(sql_type, encoding, 2)
    assert column.own_type is not None and column.parser()(value) == expected
    converted, misfits = ArrowColumn(column).convert([value])
    assert (converted.cast(ArrowColumn(ColumnType(sql_type)).arrow).to_pylist() == [None]) == (value is None)
    assert misfits == []


@pytest.mark.parametrize(
    ("sql_type", "encoding", "value"),
    [("string", "base64", "/w=="), ("bigint", "decimal_bytes", "BNI="), ("boolean", "epoch_days", 1)],
)
def test_values_that_do_not_fit_another_type_are_misfits(sql_type: str, encoding: str, value: Any) -> None:
    assert ArrowColumn(ColumnType(sql_type, encoding, 2)).convert([value])[1] == [0]
