"""JSON values and columns for them: what each value becomes, or why it does not fit."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator

from lakecdc.ingest.formats.values import Field

_INTEGERS = [str(sign * (2**bits - one)) for bits in (7, 15, 31, 63) for sign in (1, -1) for one in (0, 1)]
_INTEGERS += ["0", "1", "7", "-1", "-129", "2147483648", "-2147483649", "18446744073709551615", str(10**30), "-0"]
_FRACTIONS = [
    *(
        "1.0",
        "1.5",
        "-1.5",
        "0.1",
        "-0.0",
        "0.05",
        "12.34",
        "12.340",
        "12.345",
        "1e2",
        "1E2",
        "1.5e1",
        "1e-2",
        "1.00e0",
    ),
    *(
        "9007199254740993",
        "9007199254740993.0",
        "0.1234567890123456789",
        "1e308",
        "1e309",
        "1e-400",
        "3.4e38",
        "3.5e38",
    ),
    *("123456789012345678.12", "99999999.99", "100000000.00", "12345678901234567890123456789012345678"),
    *("123456789012345678901234567890123456789", "0.30000000000000004", "16777217", "3.1415927", "1e22", "1e38"),
]
_STRANGE_NUMBERS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "inf",
    "+1",
    "1_000",
    " 1 ",
    "1.",
    ".5",
    "0x10",
    "1d",
    "1f",
    "٣",
    "01",
]
_TEXTS = ["", " ", "abc", "true", "false", "TRUE", "t", "yes", "null", "é", "a\u0000b", '{"a":1}', "[1]", "x" * 40]
_DATES = [
    *("2026-01-01", "0001-01-01", "0000-00-00", "0000-01-01", "9999-12-31", "10000-01-01", "2026-02-29", "2024-02-29"),
    *("2026-1-1", "2026-01", "2026", "20260101", "2026-01-01Z", "2026-01-01 ", "+2026-01-01", "-0001-01-01"),
    *("2026-01-01T00:00:00", "2026-01-01 00:00:00", "2026-01-01T12:34:56", "2026-01-01 12:34:56.1"),
    *("2026-01-01T12:34:56.123456", "2026-01-01T12:34:56.1234567", "2026-01-01T12:34:56.1234560", "2026-01-01T12:34"),
    *("2026-01-01T12:34:56Z", "2026-01-01T12:34:56+02:00", "2026-01-01T12:34:56.5-05:30", "2026-01-01T12:34:56+18:00"),
    *("2026-01-01T12:34:56+19:00", "2026-01-01T24:00:00", "2026-01-01T23:59:60", "2026-13-01T00:00:00", "12:34:56"),
    *("2026-01-01T12:34:56 Europe/Berlin", "2026-01-01T12:34:56+0200", "infinity", "-infinity", "epoch", "now"),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-12:00", "0000-00-00 00:00:00"),
]
_BASE64 = [
    "eA==",
    "eB==",
    "eA",
    "ew==",
    "/4U=",
    "AA==",
    "",
    "e w==",
    "ew==\n",
    "e_w=",
    "AQAAAAAAAAAA",
    "AKtUqYzrHwrSHw==",
    "!",
]
_BASE64 += [b64encode(number.to_bytes(16, "big", signed=True)).decode() for number in (10**37, -(10**37), 2**127 - 1)]
_BASE64 += [b64encode(b"\x01" + bytes(16)).decode(), b64encode(bytes(20) + b"\x05").decode()]
_EPOCHS = ["0", "-1", "20454", "-719162", "-719163", "2932896", "2932897", "1767225600000", "-62135596800000"]
_EPOCHS += ["1767225600123456", "253402300799999999", "253402300800000000", "-62135596800000001", "1767225600123456789"]
_EPOCHS += ["86399999999", "86400000000", "-3600000000", "3020399000000", "-9223372036854775808", "9223372036854775807"]
_OBJECTS = ["{}", "[]", '{"a": 1}', "[1, 2.50]", '{"b": {"a": "x"}}']
_VARIABLE = [
    *(
        '{"scale": 2, "value": "ew=="}',
        '{"scale": 0, "value": "ew=="}',
        '{"value": "ew==", "scale": 1}',
        '{"scale": 2}',
    ),
    *('{"scale": -2, "value": "ew=="}', '{"scale": 40, "value": "ew=="}', '{"scale": 18, "value": "hQ=="}'),
    *('{"scale": "2", "value": "ew=="}', '{"scale": 2, "value": 123}', '{"scale": 2, "value": "ew==", "more": 1}'),
]

#: every value as JSON: bare numbers, the same as text, text, objects, and the words of JSON
VALUES = list(
    dict.fromkeys(
        [
            *("null", "true", "false"),
            *(number for number in (*_INTEGERS, *_FRACTIONS, *_EPOCHS)),
            *(json.dumps(text) for text in (*_INTEGERS, *_FRACTIONS, *_STRANGE_NUMBERS, *_TEXTS, *_DATES, *_BASE64)),
            *(json.dumps(text) for text in _EPOCHS[:6]),
            *_OBJECTS,
            *_VARIABLE,
        ]
    )
)

_PLAIN = [
    *("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string", "binary", "date", "timestamp"),
    *("timestamp_ntz", "decimal(10,2)", "decimal(38,0)", "decimal(38,18)", "decimal(38,2)", "decimal(5,5)"),
]


def columns() -> Iterator[Field]:
    """Yield every type with each of its encodings."""
    yield from (Field("c", kind) for kind in _PLAIN)
    yield Field("c", "binary", "base64")
    for kind, scale in (
        ("decimal(10,2)", 2),
        ("decimal(38,0)", 0),
        ("decimal(38,18)", 18),
        ("string", 3),
        ("string", 0),
    ):
        yield Field("c", kind, "decimal_bytes", scale)
    for kind in ("string", "decimal(10,2)", "decimal(38,18)"):
        yield Field("c", kind, "variable_decimal")
    yield Field("c", "date", "epoch_days")
    for unit in ("millis", "micros", "nanos"):
        yield Field("c", "timestamp_ntz", f"epoch_{unit}")
        yield Field("c", "timestamp", f"epoch_{unit}")
        yield Field("c", "string", f"time_{unit}")
    yield Field("c", "string", "enum", names=("a", "b", "7"))
    yield Field("c", "string", "set", names=("a", "b", "c"))
