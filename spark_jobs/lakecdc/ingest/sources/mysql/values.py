"""Convert values of the binary log to the text that the server writes for them, column by column.

A value in a row image has a fixed size or follows its length. Layouts: MySQL's ``rpl`` internals manual
("Table_map_event", "Rows_event") and the comments on ``my_datetime_packed_to_binary`` and ``decimal2bin``.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, Any]
#: returns the texts of values; raises one of ``rows.UNREADABLE`` on malformed bytes
Read = Callable[[Sequence[bytes]], "pa.Array"]

_DIGITS_TO_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


@dataclass(frozen=True)
class Codec:
    """The encoding of one column's values in a row image.

    :param size: bytes of a value, if ``prefix`` is 0.
    :param prefix: bytes of the length before the value.
    :param dated: the text begins with a date, which may be zero.
    """

    read: Read
    size: int = 0
    prefix: int = 0
    dated: bool = False


def each(text: Callable[[bytes], str]) -> Read:
    """Return a reader that converts values one by one."""

    def read(raws: Sequence[bytes]) -> pa.Array:
        return pa.array([text(raw) for raw in raws], pa.string())

    return read


def integer(size: int, unsigned: bool) -> Codec:
    spare = 64 - 8 * size

    def read(raws: Sequence[bytes]) -> pa.Array:
        number = _little_endian(_octets(raws, size))
        return _number_texts(number if unsigned else number.astype("i8") << spare >> spare)

    return Codec(read, size)


def bits(size: int) -> Codec:
    """Read a bit field as a number, big-endian."""
    return Codec(lambda raws: _number_texts(_big_endian(_octets(raws, size))), size)


def real(size: int) -> Codec:
    """Read a double, or a float as the nearest double, which casts back to the same float."""
    layout = _FLOAT if size == 4 else _DOUBLE
    return Codec(each(lambda raw: repr(layout.unpack(raw)[0])), size)


def year() -> Codec:
    """Read a year, 0 for the year 0000."""
    return Codec(each(lambda raw: str(1900 + raw[0]) if raw[0] else "0"), 1)


def octets(prefix: int, padded: int = 0) -> Codec:
    """Read bytes as hexadecimal digits.

    :param padded: size of a BINARY column, whose trailing zero bytes the log leaves out.
    """
    return Codec(each(lambda raw: raw.ljust(padded, b"\0").hex()), prefix=prefix)


def enumeration(size: int, values: Sequence[str]) -> Codec:
    """Read an ENUM; index 0 is a refused value, shown as the empty string."""

    def read(raws: Sequence[bytes]) -> pa.Array:
        return pa.array(["", *values], pa.string()).take(pa.array(_little_endian(_octets(raws, size))))

    return Codec(read, size)


def selection(size: int, values: Sequence[str]) -> Codec:
    """Read a SET, its members in the order of the definition."""

    def text(raw: bytes) -> str:
        mask = int.from_bytes(raw, "little")
        return ",".join(value for place, value in enumerate(values) if mask >> place & 1)

    return Codec(each(text), size)


def decimal_groups(precision: int, scale: int) -> list[tuple[int, int]]:
    """Return digits and bytes of a DECIMAL's groups; the first and the last may be short."""
    whole, rest = divmod(precision - scale, 9), divmod(scale, 9)
    return [(digits, _DIGITS_TO_BYTES[digits]) for digits in (whole[1], *[9] * (whole[0] + rest[0]), rest[1]) if digits]


def decimal(precision: int, scale: int) -> Codec:
    """Read a DECIMAL: groups of nine digits as big-endian integers, the sign in the first bit."""
    groups = decimal_groups(precision, scale)
    size = sum(octets for _, octets in groups)

    def read(raws: Sequence[bytes]) -> pa.Array:
        stored = _octets(raws, size).copy()
        # a negative number has all bits inverted, the sign bit too
        negative = stored[:, 0] & 0x80 == 0
        stored[negative] ^= 0xFF
        stored[:, 0] ^= 0x80
        parts: list[str | tuple[Numbers, int]] = []
        at, left = 0, precision - scale
        for digits, octets in groups:
            if left == 0:
                parts.append(".")
            parts.append((_big_endian(stored[:, at : at + octets]), digits))
            at, left = at + octets, left - digits
        # one digit precedes the point
        text = pc.ascii_ltrim(_written(parts), "0")
        short = pc.starts_with(text, ".") if scale else pc.equal(text, "")
        text = pc.if_else(short, pc.binary_join_element_wise("0", text, ""), text)
        return pc.if_else(pa.array(negative), pc.binary_join_element_wise("-", text, ""), text)

    return Codec(read, size)


def day() -> Codec:
    """Read a DATE: year * 512 + month * 32 + day."""

    def read(raws: Sequence[bytes]) -> pa.Array:
        number = _little_endian(_octets(raws, 3))
        return _written([(number >> 9, 4), "-", (number >> 5 & 15, 2), "-", (number & 31, 2)])

    return Codec(read, 3, dated=True)


def moment(places: int) -> Codec:
    """Read a DATETIME: 1 bit, year * 13 + month in 17, then day, hour, minute, second, then ``places`` digits."""
    size = 5 + (places + 1) // 2

    def read(raws: Sequence[bytes]) -> pa.Array:
        stored = _octets(raws, size)
        value = _big_endian(stored[:, :5]) & 0x7FFFFFFFFF
        months = value >> 22
        date = months // 13, months % 13, value >> 17 & 31
        time = value >> 12 & 31, value >> 6 & 63, value & 63
        return _moment(date, time, _big_endian(stored[:, 5:]), places)

    return Codec(read, size, dated=True)


def instant(places: int) -> Codec:
    """Read a TIMESTAMP in UTC: seconds since 1970, then ``places`` digits; all zero is the zero date."""
    size = 4 + (places + 1) // 2

    def read(raws: Sequence[bytes]) -> pa.Array:
        stored = _octets(raws, size)
        seconds, rest = _big_endian(stored[:, :4]), _big_endian(stored[:, 4:])
        day = (seconds // 86400).astype("M8[D]")
        months = day.astype("M8[M]")
        number = months.astype("i8")
        there = (seconds != 0) | (rest != 0)
        date = (1970 + number // 12) * there, (number % 12 + 1) * there, ((day - months).astype("i8") + 1) * there
        return _moment(date, (seconds // 3600 % 24, seconds // 60 % 60, seconds % 60), rest, places)

    return Codec(read, size, dated=True)


@lru_cache(65536)
def clock(seconds: int) -> str:
    """Return ``hh:mm:ss`` of six bits each, more for the hours."""
    return f"{seconds >> 12:02d}:{seconds >> 6 & 63:02d}:{seconds & 63:02d}"


def duration(places: int) -> Codec:
    """Read a TIME; if it is negative, so is the whole number with its ``places`` digits."""
    extra = (places + 1) // 2
    middle, mask = 0x800000 << 8 * extra, (1 << 8 * extra) - 1

    def text(raw: bytes) -> str:
        value = int.from_bytes(raw, "big") - middle
        sign, value = ("-", -value) if value < 0 else ("", value)
        # two digits a byte, the last of which may be no declared one
        fraction = f".{value & mask:0{2 * extra}d}"[: places + 1] if places else ""
        return f"{sign}{clock(value >> 8 * extra)}{fraction}"

    return Codec(each(text), 3 + extra)


def _octets(raws: Sequence[bytes], size: int) -> Numbers:
    """Return values of one size, a row each."""
    return np.frombuffer(b"".join(raws), np.uint8).reshape(len(raws), size)


def _big_endian(octets: Numbers) -> Numbers:
    """Return the numbers in rows of at most eight bytes; eight bytes are unsigned."""
    count, size = octets.shape
    wide = np.zeros((count, 8), np.uint8)
    wide[:, 8 - size :] = octets
    return wide.view(">u8").ravel().astype("u8" if size == 8 else "i8")


def _little_endian(octets: Numbers) -> Numbers:
    return _big_endian(octets[:, ::-1])


def _number_texts(numbers: Numbers) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _moment(date: tuple[Numbers, ...], time: tuple[Numbers, ...], rest: Numbers, places: int) -> pa.Array:
    parts: list[str | tuple[Numbers, int]] = [(date[0], 4), "-", (date[1], 2), "-", (date[2], 2), " "]
    parts += [(time[0], 2), ":", (time[1], 2), ":", (time[2], 2)]
    # two digits a byte, the last of which may be no declared one
    return _written([*parts, ".", (rest // 10 ** (places % 2), places)] if places else parts)


def _written(parts: Sequence[str | tuple[Numbers, int]]) -> pa.Array:
    """Return texts of one width.

    :param parts: literals, or numbers and how many digits they have.
    :raises ValueError: a number has more digits.
    """
    count = len(next(part[0] for part in parts if not isinstance(part, str)))
    width = sum(len(part) if isinstance(part, str) else part[1] for part in parts)
    text = np.empty((count, width), np.uint8)
    at = 0
    for part in parts:
        if isinstance(part, str):
            text[:, at] = ord(part)
            at += 1
            continue
        numbers, digits = part
        if (numbers >= 10**digits).any():
            raise ValueError("too many digits")
        for place in reversed(range(digits)):
            numbers, text[:, at + place] = numbers // 10, numbers % 10 + 48
        at += digits
    offsets = np.arange(0, width * (count + 1), width, dtype=np.int32)[: count + 1]
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


_ENCODINGS = {
    **{name: name for name in ("ascii", "latin2", "latin5", "latin7", "greek", "hebrew", "tis620", "macroman")},
    **{name: name for name in ("cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "cp932")},
    **{name: name for name in ("gbk", "gb2312", "gb18030", "big5", "sjis")},
    **dict.fromkeys(("utf8mb4", "utf8mb3", "utf8"), "utf-8"),
    **dict.fromkeys(("ucs2", "utf16"), "utf-16-be"),
    **{"utf16le": "utf-16-le", "utf32": "utf-32-be"},
    **{"latin1": "cp1252", "koi8r": "koi8-r", "koi8u": "koi8-u", "macce": "mac-latin2"},
    # includes the syllables that EUC-KR lacks
    "euckr": "cp949",
    **dict.fromkeys(("ujis", "eucjpms"), "euc-jp"),
}


def reader(charset: str) -> Read | None:
    """Return a reader that decodes a MySQL character set as the server does; None if Python cannot."""
    encoding = _ENCODINGS.get(charset)
    if encoding == "utf-8":
        return _utf8
    if encoding is None:
        return None
    errors, differs = _HANDLERS.get(encoding, "strict"), _DIFFERENT.get(charset)
    if differs:
        return each(lambda raw: raw.decode(encoding, errors).translate(differs))
    read = each(lambda raw: raw.decode(encoding, errors))
    if charset == "latin1":
        return lambda raws: _utf8(raws) if b"".join(raws).isascii() else read(raws)
    return read


def _utf8(raws: Sequence[bytes]) -> pa.Array:
    try:
        return pa.array(raws, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        # the error names the wrong byte
        return each(bytes.decode)(raws)


#: characters that Python and MySQL decode differently, found by asking a server for all of them
_DIFFERENT = {
    "cp866": {0xA4: 0xB2, 0x2116: 0x207F},
    "eucjpms": {0xA2: 0xFFE0, 0xA3: 0xFFE1, 0xA6: 0xFFE4, 0xAC: 0xFFE2, 0x2016: 0x2225, 0x2212: 0xFF0D, 0x301C: 0xFF5E},
    "gb18030": {0x1E3F: 0xE7C7, 0xE7C7: 0x1E3F},
    "greek": {0x2018: 0x2BD, 0x2019: 0x2BC},
    "hebrew": {0xAF: 0x203E},
    "koi8u": {0x2219: 0x2022},
    "sjis": {0xFF3C: 0x5C},
}
#: handlers of bytes that Python's encodings lack
_HANDLERS = {"big5": "lakecdc-big5", "cp1252": "lakecdc-cp1252", "euc-jp": "lakecdc-euc-jp"}


def _beyond_big5(error: UnicodeError) -> tuple[str, int]:
    """Return the seven characters of ETEN that Python's big5 lacks."""
    assert isinstance(error, UnicodeDecodeError)
    end = error.start + 2
    return error.object[error.start : end].decode("cp950"), end


def _beyond_cp1252(error: UnicodeError) -> tuple[str, int]:
    """Return the control character that MySQL's latin1 has in each of five places that cp1252 leaves free."""
    assert isinstance(error, UnicodeDecodeError)
    return chr(error.object[error.start]), error.start + 1


def _beyond_euc_jp(error: UnicodeError) -> tuple[str, int]:
    """Return user-defined characters and those of NEC row 13, which cp932 has in its byte order."""
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
codecs.register_error(_HANDLERS["cp1252"], _beyond_cp1252)
codecs.register_error(_HANDLERS["euc-jp"], _beyond_euc_jp)
