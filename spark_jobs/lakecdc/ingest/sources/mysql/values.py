"""Values of the binary log as the text that the server writes for them in a result.

A value in a row image is a run of bytes, of a fixed size or behind its length. Layouts: MySQL's ``rpl`` internals
manual ("Table_map_event", "Rows_event") and the comments on ``my_datetime_packed_to_binary`` and ``decimal2bin``.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

from lakecdc.ingest.sources.mysql import column_texts
from lakecdc.ingest.sources.mysql.column_texts import Many

Text = Callable[[bytes], str]

_DIGITS_TO_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_EPOCH = date(1970, 1, 1)
ZERO_MOMENT = "0000-00-00 00:00:00"


@dataclass(frozen=True)
class Codec:
    """How a row image holds one column's values.

    :param text: the value's text from its bytes.
    :param size: bytes of every value, if ``prefix`` is 0.
    :param prefix: bytes of the length that stands before the value.
    :param dated: the text begins with a date, which may be zero.
    :param many: the texts of many values at once; None if each is read by itself.
    """

    text: Text
    size: int = 0
    prefix: int = 0
    dated: bool = False
    many: Many | None = None


def integer(size: int, unsigned: bool) -> Codec:
    many = column_texts.integers(size, unsigned=unsigned)
    return Codec(lambda raw: str(int.from_bytes(raw, "little", signed=not unsigned)), size, many=many)


def bits(size: int) -> Codec:
    """Read a bit field as a number, big-endian."""
    return Codec(lambda raw: str(int.from_bytes(raw, "big")), size, many=column_texts.bit_fields(size))


def real(size: int) -> Codec:
    """Read a float as the double nearest to it, which casts back to the same float; or a double."""
    layout = _FLOAT if size == 4 else _DOUBLE
    return Codec(lambda raw: repr(layout.unpack(raw)[0]), size)


def year() -> Codec:
    """Read a year, 0 for the year 0000."""
    return Codec(lambda raw: str(1900 + raw[0]) if raw[0] else "0", 1)


def characters(prefix: int, text: Text) -> Codec:
    """Read text in a character set; see :func:`reader`."""
    known: dict[Text, Many] = {_utf8: column_texts.utf8, _latin1: column_texts.ascii_of_latin1}
    many = known.get(text)
    return Codec(text, prefix=prefix, many=many)


def octets(prefix: int, padded: int = 0) -> Codec:
    """Read bytes as hexadecimal digits.

    :param padded: size of a BINARY column, whose trailing zero bytes the log leaves out.
    """
    if padded:
        return Codec(lambda raw: raw.ljust(padded, b"\0").hex(), prefix=prefix)
    return Codec(lambda raw: raw.hex(), prefix=prefix)


def enumeration(size: int, values: Sequence[str]) -> Codec:
    """Read an ENUM; index 0 is what a refused value became, shown as the empty string."""
    texts = ("", *values)
    many = column_texts.members(size, texts)
    return Codec(lambda raw: texts[int.from_bytes(raw, "little")], size, many=many)


def selection(size: int, values: Sequence[str]) -> Codec:
    """Read a SET, its members in the order of the definition."""

    def text(raw: bytes) -> str:
        mask = int.from_bytes(raw, "little")
        return ",".join(value for place, value in enumerate(values) if mask >> place & 1)

    return Codec(text, size)


def decimal(precision: int, scale: int) -> Codec:
    """Read a DECIMAL: groups of nine digits as big-endian integers, the sign in the first bit."""
    whole = precision - scale
    # digits of each group; the first and the last may be short
    groups = [
        *([whole % 9] if whole % 9 else []),
        *[9] * (whole // 9 + scale // 9),
        *([scale % 9] if scale % 9 else []),
    ]
    sizes = [_DIGITS_TO_BYTES[digits] for digits in groups]
    size = sum(sizes)
    plan = [(8 * sum(sizes[i + 1 :]), (1 << 8 * sizes[i]) - 1, 10**digits) for i, digits in enumerate(groups)]
    sign, every = 1 << 8 * size - 1, (1 << 8 * size) - 1

    def text(raw: bytes) -> str:
        stored = int.from_bytes(raw, "big")
        # a negative number has all its bits turned round, the sign's too
        negative = not stored & sign
        stored ^= sign ^ every if negative else sign
        value = 0
        for shift, mask, power in plan:
            value = value * power + (stored >> shift & mask)
        digits = str(value)
        if scale:
            digits = digits.zfill(scale + 1)
            digits = f"{digits[:-scale]}.{digits[-scale:]}"
        return f"-{digits}" if negative else digits

    return Codec(text, size, many=column_texts.decimals(groups, sizes, scale))


@lru_cache(65536)
def day_text(number: int) -> str:
    """Return the text of a day, whose number is year * 512 + month * 32 + day."""
    return f"{number >> 9:04d}-{number >> 5 & 15:02d}-{number & 31:02d}"


@lru_cache(65536)
def _day_since_1970(number: int) -> str:
    return (_EPOCH + timedelta(number)).isoformat()


def day() -> Codec:
    return Codec(lambda raw: day_text(int.from_bytes(raw, "little")), 3, dated=True, many=column_texts.days)


@lru_cache(65536)
def clock(seconds: int) -> str:
    """Return ``hh:mm:ss`` of six bits each, more for the hours."""
    return f"{seconds >> 12:02d}:{seconds >> 6 & 63:02d}:{seconds & 63:02d}"


def fraction(value: int, places: int) -> str:
    """Return the digits after the second, point included.

    :param value: as stored: two digits per byte.
    :param places: declared number of digits, 0 to 6.
    """
    return f".{value:0{places + places % 2}d}"[: places + 1] if places else ""


def moment(places: int) -> Codec:
    """Read a DATETIME: 1 bit, year * 13 + month in 17, then day, hour, minute, second, then the fraction."""

    def text(raw: bytes) -> str:
        value = int.from_bytes(raw[:5], "big") & 0x7FFFFFFFFF
        days = value >> 17
        months = days >> 5
        number = (months // 13) << 9 | (months % 13) << 5 | days & 31
        return f"{day_text(number)} {clock(value & 0x1FFFF)}{fraction(int.from_bytes(raw[5:], 'big'), places)}"

    return Codec(text, 5 + (places + 1) // 2, dated=True, many=column_texts.moments(places))


def instant(places: int) -> Codec:
    """Read a TIMESTAMP in UTC: seconds since 1970, then the fraction; all zero is the zero date."""

    def text(raw: bytes) -> str:
        seconds, rest = int.from_bytes(raw[:4], "big"), int.from_bytes(raw[4:], "big")
        if not seconds and not rest:
            return ZERO_MOMENT + fraction(0, places)
        days, seconds = divmod(seconds, 86400)
        hours, seconds = divmod(seconds, 3600)
        return (
            f"{_day_since_1970(days)} {clock(hours << 12 | seconds // 60 << 6 | seconds % 60)}{fraction(rest, places)}"
        )

    return Codec(text, 4 + (places + 1) // 2, dated=True, many=column_texts.instants(places))


def duration(places: int) -> Codec:
    """Read a TIME, which may be negative: then the whole number with its fraction is."""
    extra = (places + 1) // 2
    middle, mask = 0x800000 << 8 * extra, (1 << 8 * extra) - 1

    def text(raw: bytes) -> str:
        value = int.from_bytes(raw, "big") - middle
        sign, value = ("-", -value) if value < 0 else ("", value)
        return f"{sign}{clock(value >> 8 * extra)}{fraction(value & mask, places)}"

    return Codec(text, 3 + extra)


def old_instant() -> Codec:
    """Read a TIMESTAMP of a table made before MySQL 5.6."""
    newer = instant(0)
    return Codec(lambda raw: newer.text(raw[::-1]), 4, dated=True)


def old_moment() -> Codec:
    """Read a DATETIME of a table made before MySQL 5.6: its digits as one number."""

    def text(raw: bytes) -> str:
        t = f"{int.from_bytes(raw, 'little'):014d}"
        return f"{t[:4]}-{t[4:6]}-{t[6:8]} {t[8:10]}:{t[10:12]}:{t[12:]}"

    return Codec(text, 8, dated=True)


def old_duration() -> Codec:
    """Read a TIME of a table made before MySQL 5.6: its digits as one number."""

    def text(raw: bytes) -> str:
        value = int.from_bytes(raw, "little", signed=True)
        digits = f"{abs(value):06d}"
        return f"{'-' if value < 0 else ''}{digits[:-4]}:{digits[-4:-2]}:{digits[-2:]}"

    return Codec(text, 3)


_ENCODINGS = {
    **dict.fromkeys(("utf8mb4", "utf8mb3", "utf8"), "utf-8"),
    "latin1": "cp1252",
    "ascii": "ascii",
    **dict.fromkeys(("ucs2", "utf16"), "utf-16-be"),
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    **{name: name for name in ("cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "cp932")},
    **{name: name for name in ("gbk", "gb2312", "gb18030", "big5")},
    # with the syllables that EUC-KR itself lacks
    "euckr": "cp949",
    "sjis": "shift_jis",
    **dict.fromkeys(("ujis", "eucjpms"), "euc-jp"),
    "tis620": "tis-620",
    "macroman": "mac-roman",
    "macce": "mac-latin2",
}


def python_encoding(charset: str) -> str | None:
    """Return Python's name of a character set of MySQL; None if Python has none."""
    return _ENCODINGS.get(charset)


def reader(charset: str) -> Text | None:
    """Return what decodes a character set of MySQL as the server does; None if Python cannot."""
    encoding = python_encoding(charset)
    if encoding is None:
        return None
    if encoding == "utf-8":
        return _utf8
    if charset == "latin1":
        return _latin1
    errors, differs = _HANDLERS.get(encoding, "strict"), _DIFFERENT.get(charset)
    if differs:
        return lambda raw: raw.decode(encoding, errors).translate(differs)
    return lambda raw: raw.decode(encoding, errors)


def _utf8(raw: bytes) -> str:
    return raw.decode()


def _latin1(raw: bytes) -> str:
    try:
        return raw.decode("cp1252")
    except UnicodeDecodeError:
        # MySQL's latin1 keeps control characters in the five places that cp1252 leaves free
        return "".join(bytes((o,)).decode("cp1252" if o not in _FREE else "latin-1") for o in raw)


_FREE = frozenset(b"\x81\x8d\x8f\x90\x9d")
#: characters of Python's that are others at MySQL, found by asking a server for all of them
_DIFFERENT = {
    "cp866": {0xA4: 0xB2, 0x2116: 0x207F},
    "eucjpms": {0xA2: 0xFFE0, 0xA3: 0xFFE1, 0xA6: 0xFFE4, 0xAC: 0xFFE2, 0x2016: 0x2225, 0x2212: 0xFF0D, 0x301C: 0xFF5E},
    "gb18030": {0x1E3F: 0xE7C7, 0xE7C7: 0x1E3F},
    "greek": {0x2018: 0x2BD, 0x2019: 0x2BC},
    "hebrew": {0xAF: 0x203E},
    "koi8u": {0x2219: 0x2022},
    "sjis": {0xFF3C: 0x5C},
}
#: what reads the bytes that Python's encodings stop at
_HANDLERS = {"big5": "lakecdc-big5", "euc-jp": "lakecdc-euc-jp"}


def _beyond_big5(error: UnicodeError) -> tuple[str, int]:
    """Return the seven characters of ETEN that Python's big5 lacks."""
    assert isinstance(error, UnicodeDecodeError)
    end = error.start + 2
    return error.object[error.start : end].decode("cp950"), end


def _beyond_euc_jp(error: UnicodeError) -> tuple[str, int]:
    """Return the users' own characters, and those of NEC in row 13, which cp932 has in its order of bytes."""
    assert isinstance(error, UnicodeDecodeError)
    third = error.object[error.start] == 0x8F
    start = error.start + third
    row, cell = (octet - 0xA1 for octet in error.object[start : start + 2])
    if row >= 84:
        return chr((0xE3AC if third else 0xE000) + (row - 84) * 94 + cell), start + 2
    if third or row & 1:
        raise error
    return bytes((0x81 + row // 2, 0x40 + cell + (cell > 62))).decode("cp932"), start + 2


codecs.register_error(_HANDLERS["big5"], _beyond_big5)
codecs.register_error(_HANDLERS["euc-jp"], _beyond_euc_jp)
