"""Values of the log whose bytes no server of the tests writes."""

from __future__ import annotations

import struct

import pytest

from lakecdc.ingest.sources.mysql import values
from lakecdc.ingest.sources.mysql.place import FILE_STEP, Place
from lakecdc.ingest.sources.mysql.values import Codec


@pytest.mark.parametrize(
    ("codec", "raw", "text"),
    [
        (values.real(4), struct.pack("<f", -0.0), "-0.0"),
        (values.real(8), struct.pack("<d", -0.0), "-0.0"),
        # the example of MySQL's comment on decimal2bin: DECIMAL(14,4)
        (values.decimal(14, 4), bytes.fromhex("810DFB38D204D2"), "1234567890.1234"),
        (values.decimal(14, 4), bytes.fromhex("7EF204C72DFB2D"), "-1234567890.1234"),
        (values.old_instant(), struct.pack("<I", 86399), "1970-01-01 23:59:59"),
        (values.old_instant(), bytes(4), "0000-00-00 00:00:00"),
        (values.old_moment(), struct.pack("<Q", 20240229235958), "2024-02-29 23:59:58"),
        (values.old_duration(), (-10203).to_bytes(3, "little", signed=True), "-01:02:03"),
        (values.old_duration(), (8385959).to_bytes(3, "little", signed=True), "838:59:59"),
        (values.instant(6), bytes.fromhex("FFFFFFFF") + (999_999).to_bytes(3, "big"), "2106-02-07 06:28:15.999999"),
        (values.enumeration(1, ["a"]), b"\0", ""),
        (values.json_document(4), b"\x00" + bytes.fromhex("01000c000b000100") + b"\x05" + b"\x01\x00a", '{"a": 1}'),
        (values.json_document(4), b"", "null"),
    ],
)
def test_text(codec: Codec, raw: bytes, text: str) -> None:
    assert codec.text(raw) == text


def test_sizes_of_decimals() -> None:
    assert [values.decimal(p, s).size for p, s in [(14, 4), (10, 2), (65, 30), (9, 9), (1, 0)]] == [7, 5, 30, 4, 1]


def test_places_are_compared_as_numbers() -> None:
    in_order = [Place("binlog.000009", 2**31), Place("binlog.000010", 4), Place("binlog.999999", 4),
                Place("binlog.1000000", 4)]  # fmt: skip
    numbers = [place.number for place in in_order]
    assert numbers == sorted(numbers) and len({*numbers}) == 4
    assert Place("binlog.000001", 5 * FILE_STEP).number < Place("binlog.000002", 4).number, "a file beyond 4 GiB"
