"""Values of the log whose bytes no server of the tests writes."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecdc.ingest.sources.mysql import values
from lakecdc.ingest.sources.mysql.events import ANONYMOUS, TAGGED, gtid_of, merged_gtid
from lakecdc.ingest.sources.mysql.json_binary import json_document
from lakecdc.ingest.sources.mysql.rows import Image, Rows, UnreadableError
from lakecdc.ingest.sources.mysql.table_map import LayoutError, Named, read_columns
from lakecdc.ingest.sources.mysql.types import MysqlType
from lakecdc.ingest.sources.mysql.values import Codec
from lakecdc.model.positions import FILE_STEP, Place
from tests.lakecdc.ingest.formats.fuzz import mutated_bytes
from tests.on_demand import on_demand


@pytest.mark.parametrize(
    ("codec", "raw", "text"),
    [
        (values.real(4), struct.pack("<f", -0.0), "-0.0"),
        (values.real(8), struct.pack("<d", -0.0), "-0.0"),
        # the example in MySQL's comment on decimal2bin: DECIMAL(14,4)
        (values.decimal(14, 4), bytes.fromhex("810DFB38D204D2"), "1234567890.1234"),
        (values.decimal(14, 4), bytes.fromhex("7EF204C72DFB2D"), "-1234567890.1234"),
        (values.instant(6), bytes.fromhex("FFFFFFFF") + (999_999).to_bytes(3, "big"), "2106-02-07 06:28:15.999999"),
        (values.enumeration(1, ["a"]), b"\0", ""),
        (json_document(4), b"\x00" + bytes.fromhex("01000c000b000100") + b"\x05" + b"\x01\x00a", '{"a": 1}'),
        (json_document(4), b"", "null"),
        # 1234567890.1234 and its negative as DECIMAL(14,4), and 0.5 as DECIMAL(1,1)
        (json_document(4), bytes.fromhex("0ff6090e04810DFB38D204D2"), "1234567890.1234"),
        (json_document(4), bytes.fromhex("0ff6090e047EF204C72DFB2D"), "-1234567890.1234"),
        (json_document(4), bytes.fromhex("0ff603010185"), "0.5"),
    ],
)
def test_texts_are_decoded(codec: Codec, raw: bytes, text: str) -> None:
    assert codec.read([raw]).to_pylist() == [text]


def test_times_of_tables_from_before_mysql_5_6_are_refused() -> None:
    # one column of type 7, no metadata, its null bit
    with pytest.raises(LayoutError, match="Column 'at' has the time format of before MySQL 5.6; run ALTER TABLE"):
        read_columns(bytes((1, 7, 0, 0)), 0, {}, lambda: [Named("at", MysqlType("timestamp"))], mariadb=False)


Values = st.SearchStrategy[tuple[bytes, str]]


def numbers(size: int, *, signed: bool, order: Literal["little", "big"] = "little") -> Values:
    low, high = (-1 << 8 * size - 1, (1 << 8 * size - 1) - 1) if signed else (0, (1 << 8 * size) - 1)
    return st.integers(low, high).map(lambda number: (number.to_bytes(size, order, signed=signed), str(number)))


def fraction(time: datetime, places: int) -> tuple[bytes, str]:
    """Return bytes and text of a second's fraction."""
    digits, extra = f"{time.microsecond:06d}"[:places], (places + 1) // 2
    return int(digits.ljust(2 * extra, "0") or "0").to_bytes(extra, "big"), f".{digits}" if places else ""


def moment(time: datetime, places: int) -> tuple[bytes, str]:
    date = 1 << 39 | (time.year * 13 + time.month) << 22 | time.day << 17
    stored = (date | time.hour << 12 | time.minute << 6 | time.second).to_bytes(5, "big")
    rest, digits = fraction(time, places)
    return stored + rest, f"{time:%Y-%m-%d %H:%M:%S}".zfill(19) + digits


def instant(time: datetime, places: int) -> tuple[bytes, str]:
    rest, digits = fraction(time, places)
    seconds = int(time.replace(tzinfo=UTC).timestamp())
    if not seconds and not int.from_bytes(rest, "big"):
        return bytes(4) + rest, "0000-00-00 00:00:00" + digits
    return seconds.to_bytes(4, "big") + rest, f"{time:%Y-%m-%d %H:%M:%S}{digits}"


def decimals(precision: int, scale: int) -> Values:
    def stored(number: int) -> tuple[bytes, str]:
        digits = f"{abs(number):0{precision}d}"
        raw, at = b"", 0
        for count, size in values.decimal_groups(precision, scale):
            raw += int(digits[at : at + count]).to_bytes(size, "big")
            at += count
        raw = bytes([raw[0] | 0x80]) + raw[1:]
        text = f"{digits[: precision - scale].lstrip('0') or '0'}{'.' if scale else ''}{digits[precision - scale :]}"
        return (raw, text) if number >= 0 else (bytes(octet ^ 0xFF for octet in raw), f"-{text}")

    return st.integers(1 - 10**precision, 10**precision - 1).map(stored)


TIMES, EPOCH, LAST = st.datetimes(), datetime(1970, 1, 1), datetime(2106, 2, 7, 6, 28, 15)
CODECS: dict[str, tuple[Codec, Values]] = {
    **{f"int{n}": (values.integer(n, False), numbers(n, signed=True)) for n in (1, 2, 3, 4, 8)},
    **{f"unsigned{n}": (values.integer(n, True), numbers(n, signed=False)) for n in (1, 2, 3, 4, 8)},
    **{f"bit{n}": (values.bits(n), numbers(n, signed=False, order="big")) for n in (1, 5, 8)},
    **{f"datetime{n}": (values.moment(n), TIMES.map(partial(moment, places=n))) for n in (0, 1, 3, 6)},
    **{f"timestamp{n}": (values.instant(n), st.datetimes(EPOCH, LAST).map(partial(instant, places=n)))
       for n in (0, 2, 5)},
    **{f"decimal{p}.{s}": (values.decimal(p, s), decimals(p, s))
       for p, s in ((1, 0), (9, 2), (10, 10), (18, 9), (18, 0), (4, 3), (38, 10), (65, 30))},
    "date": (values.day(), st.dates().map(
        lambda day: ((day.year << 9 | day.month << 5 | day.day).to_bytes(3, "little"), day.isoformat()))),
    "enum": (values.enumeration(1, ["a", "é"]), st.sampled_from([(b"\0", ""), (b"\1", "a"), (b"\2", "é")])),
    "utf8": (Codec(values.reader("utf8mb4") or values.each(str), prefix=2), st.text(max_size=5).map(
        lambda text: (text.encode(), text))),
    "latin1": (Codec(values.reader("latin1") or values.each(str), prefix=1), st.text("aé€", max_size=5).map(
        lambda text: (text.encode("cp1252"), text))),
}  # fmt: skip


@pytest.mark.parametrize("kind", CODECS)
@settings(deadline=None)
@given(data=st.data())
def test_texts_of_a_column_are_decoded(kind: str, data: st.DataObject) -> None:
    codec, pairs = CODECS[kind]
    stored = data.draw(st.lists(pairs, max_size=6))
    assert codec.read([raw for raw, _ in stored]).to_pylist() == [text for _, text in stored]


def test_nulls_and_unreadable_values_keep_their_places() -> None:
    rows = Rows(1, 0, [CODECS["utf8"][0], values.day(), None], [values.day()])
    day = (2024 << 9 | 5 << 5 | 17).to_bytes(3, "little")
    images: list[Image] = [[b"a", None, b"x"], [None, day, None], ["é".encode(), bytes(3), b""]]
    for number, image in enumerate(images):
        rows.begin(f"binlog.000001:{number}")
        rows.new += image
        rows.add("c", (7, 9), range(number, number + 1))
    rows.begin("binlog.000001:3")
    rows.old += [day]
    rows.add("d", (8, 9), range(3, 4))
    decoded = rows.batch().to_pylist()
    assert [(r["kind"], r["new"], r["old"], r["commit_lsn"], r["ordinal"]) for r in decoded] == [
        ("c", ["a", None, None], None, 7, 0), ("c", [None, "2024-05-17", None], None, 7, 1),
        ("c", ["é", "0000-00-00", None], None, 7, 2), ("d", None, ["2024-05-17"], 8, 3),
    ]  # fmt: skip
    assert rows.zero_dates == 1
    rows.begin("binlog.000001:4")
    rows.new += [b"\xff", day, None]
    rows.add("c", (9, 9), range(4, 5))
    with pytest.raises(UnreadableError, match=r"has rows at binlog.000001:4 that cannot be read: 'utf-8' codec"):
        rows.batch()


def test_decimals_have_the_servers_sizes() -> None:
    assert [values.decimal(p, s).size for p, s in [(14, 4), (10, 2), (65, 30), (9, 9), (1, 0)]] == [7, 5, 30, 4, 1]


def test_places_are_compared_as_numbers() -> None:
    in_order = [Place("binlog.000009", 2**31), Place("binlog.000010", 4), Place("binlog.999999", 4),
                Place("binlog.1000000", 4)]  # fmt: skip
    numbers = [place.number for place in in_order]
    assert numbers == sorted(numbers) and len({*numbers}) == 4
    assert Place("binlog.000001", 5 * FILE_STEP).number < Place("binlog.000002", 4).number, "a file beyond 4 GiB"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # as MySQL 9.7 wrote them
        ("027800000002cd0370dd03fd029903b822c503cd027004f103000000020404060a7461675f3108e95e", "tag_1:1"),
        ("028a00000002cd0370dd03fd029903b822c503cd027004f10300fd03fd03fd0304ffb0f9ffffffffffff060662696708e9",
         "big:9223372036854775000"),
    ],
)  # fmt: skip
def test_tagged_transaction_identifiers_are_read(body: str, expected: str) -> None:
    gtid = gtid_of(bytes(19) + bytes.fromhex(body), TAGGED, 1)
    assert gtid.startswith("f338f7bf-e65c-11f1-b338-02fc00") and gtid.endswith(f":{expected}")


def test_a_transaction_without_an_identifier_has_none() -> None:
    assert gtid_of(bytes(60), ANONYMOUS, 1) == ""


@pytest.mark.parametrize(
    ("charset", "raw", "text"),
    [
        ("utf8mb4", "c3a4", "ä"),
        ("latin1", "8180", "\x81€"),
        ("greek", "a1e1", "ʽα"),
        ("big5", "a440f9d6", "一碁"),
        ("eucjpms", "a4a2ada1f5a1", "あ①\ue000"),
        ("ujis", "8ff5a1fefe", "\ue3ac\ue3ab"),
        ("euckr", "8141", "갂"),
        ("sjis", "815f", "\\"),
    ],
)
def test_characters_equal_those_of_the_server(charset: str, raw: str, text: str) -> None:
    read = values.reader(charset)
    assert read and read([bytes.fromhex(raw)]).to_pylist() == [text]


@pytest.mark.parametrize("raw", ["ada0", "f9", "a9a1", "8fa1"])
def test_invalid_characters_are_refused(raw: str) -> None:
    read = values.reader("eucjpms")
    assert read
    with pytest.raises((ValueError, IndexError)):
        read([bytes.fromhex(raw)])


def test_an_unsupported_character_set_has_no_reader() -> None:
    assert values.reader("armscii8") is None


def in_json(value: Any) -> tuple[int, bytes]:
    """Return type and bytes of a value of MySQL's binary JSON."""
    if isinstance(value, bytes):
        return 15, bytes([12, len(value)]) + value
    if isinstance(value, str):
        return 12, bytes([len(value)]) + value.encode()
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if not isinstance(value, dict | list):
        return (4, b"\0\0") if value is None else (5, struct.pack("<h", value))
    names = "".join(value) if isinstance(value, dict) else ""
    members = [in_json(member) for member in (value.values() if isinstance(value, dict) else value)]
    place = 4 + (4 * len(members) if isinstance(value, dict) else 0) + 3 * len(members)
    keys, entries, rest = b"", b"", names.encode()
    for name in value if isinstance(value, dict) else ():
        keys += struct.pack("<HH", place + names.index(name), len(name))
    for kind, raw in members:
        entries += bytes([kind]) + (raw if kind in (4, 5) else struct.pack("<H", place + len(rest)))
        rest += b"" if kind in (4, 5) else raw
    head = struct.pack("<HH", len(members), place + len(rest))
    return 0 if isinstance(value, dict) else 2, head + keys + entries + rest


def document(value: Any) -> bytes:
    kind, raw = in_json(value)
    return bytes([kind]) + raw


MOMENT = struct.pack("<q", (((2024 * 13 + 5) << 5 | 17) << 17 | 10 << 12) << 24)
DOCUMENTS = [{"a": 1, "b": [None, "x", 1.5, {"c": [[], "y"]}]}, [MOMENT, 1.5e300], "text", [[[[[[1]]]]]]]


def test_undamaged_documents_are_read() -> None:
    assert json_document(4).read([document(value) for value in DOCUMENTS]).to_pylist() == [
        '{"a": 1, "b": [null, "x", 1.5, {"c": [[], "y"]}]}',
        '["2024-05-17 10:00:00.000000", 1.5e300]',
        '"text"',
        "[[[[[[1]]]]]]",
    ]


@pytest.mark.parametrize("count", on_demand((3000, 100_000), in_ci=(3000,)))
def test_a_damaged_value_raises_an_error_with_its_place(count: int) -> None:
    rng, failed = random.Random(count), 0
    codecs = [codec for codec, _ in CODECS.values()] + [json_document(4)] * 20
    for _ in range(count):
        codec = rng.choice(codecs)
        raw = document(rng.choice(DOCUMENTS)) if codec.prefix == 4 else rng.randbytes(codec.size)
        rows = Rows(1, 0, [codec], [codec])
        rows.begin("binlog.000001:7")
        rows.new += [mutated_bytes(rng, raw)]
        rows.add("c", (7, 9), range(1))
        try:
            rows.batch()
        except UnreadableError as error:
            failed += 1
            assert "has rows at binlog.000001:7 that cannot be read" in str(error)
    assert failed > count // 10


@pytest.mark.timeout(60)
def test_json_with_exponentially_many_members_is_refused() -> None:
    level, members = b"", 9
    for depth in range(12):
        entries = (bytes([2]) + struct.pack("<H", 4 + 3 * members)) * members if depth else b"\4\0\0" * members
        level = struct.pack("<HH", members, 0) + entries + level
    with pytest.raises(ValueError, match="more members than"):
        json_document(4).read([b"\2" + level])


@pytest.mark.parametrize("raw", ["0d", "04", "000100ff00"])
def test_invalid_binary_json_is_refused(raw: str) -> None:
    with pytest.raises((ValueError, IndexError, KeyError, struct.error)):
        json_document(4).read([bytes.fromhex(raw)])


def test_transaction_identifiers_are_kept_by_domain() -> None:
    assert merged_gtid("0-1-5,1-1-7", "0-1-9") == "0-1-9,1-1-7"
    assert merged_gtid("", "0-1-9") == "0-1-9" and merged_gtid("0-1-9", "") == "0-1-9"
    assert merged_gtid("uuid:4", "uuid:9") == "uuid:9"
