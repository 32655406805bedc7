"""Convert MySQL's binary JSON to the text that the server writes for it.

Layout: the comment at the head of ``sql-common/json_binary.h`` in MySQL's source. A document is a type byte and a
value; offsets within objects and arrays count from the value's first byte. MariaDB's JSON is plain text.
"""

from __future__ import annotations

import math
import struct
from base64 import b64encode
from collections.abc import Iterator
from decimal import Decimal
from json.encoder import encode_basestring

from lakecdc.ingest.sources.mysql.values import Codec, clock, decimal, each

_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS = {5: struct.Struct("<h"), 6: struct.Struct("<H"), 7: struct.Struct("<i"), 8: struct.Struct("<I"),
            9: struct.Struct("<q"), 10: struct.Struct("<Q")}  # fmt: skip
_DOUBLE, _PACKED = struct.Struct("<d"), struct.Struct("<q")
#: count and size, and the entry of a key: its offset and its length
_SMALL, _LARGE = (struct.Struct("<HH"), struct.Struct("<HH")), (struct.Struct("<II"), struct.Struct("<IH"))
_LITERAL, _REAL, _STRING, _OPAQUE = 4, 11, 12, 15
#: the log's types of values without a JSON type
_DECIMALS, _DATE, _TIME, _MOMENTS = (0, 246), 10, 11, (7, 12)
#: most digits before the point, or zeros after it, of a number without an exponent
_MOST_PLACES = 15
_LINE = 76


def json_document(prefix: int) -> Codec:
    """Read a JSON column.

    :param prefix: bytes of the length before the value.
    """
    # only an IGNORE stores an empty value
    return Codec(each(lambda raw: _text(raw[0], raw, 1, iter(raw)) if raw else "null"), prefix=prefix)


def _text(kind: int, raw: bytes, at: int, left: Iterator[int]) -> str:
    """Return the text of a value.

    :param left: ends when more members were read than the document can have: offsets of a damaged document may form a
        loop.
    :raises ValueError: an unknown type.
    """
    if kind <= 3:
        return _container(raw, at, left, large=bool(kind & 1), is_object=kind < 2)
    if kind == _STRING:
        size, at = _length(raw, at)
        return str(encode_basestring(raw[at : at + size].decode()))
    if kind in _NUMBERS:
        return str(_NUMBERS[kind].unpack_from(raw, at)[0])
    if kind == _LITERAL:
        return _LITERALS[raw[at]]
    if kind == _REAL:
        return real_text(_DOUBLE.unpack_from(raw, at)[0])
    if kind == _OPAQUE:
        size, start = _length(raw, at + 1)
        return _opaque(raw[at], raw[start : start + size])
    raise ValueError(f"the JSON type {kind} is unknown")


def _container(raw: bytes, at: int, left: Iterator[int], *, large: bool, is_object: bool) -> str:
    head, key = _LARGE if large else _SMALL
    width = 4 if large else 2
    # a small value is in the entry, in place of an offset
    inline = (_LITERAL, 5, 6, 7, 8) if large else (_LITERAL, 5, 6)
    count, _size = head.unpack_from(raw, at)
    keys = at + head.size
    entries = keys + count * key.size if is_object else keys
    texts = []
    for number in range(count):
        if next(left, None) is None:
            raise ValueError("the JSON document has more members than bytes")
        entry = entries + number * (1 + width)
        kind, value = raw[entry], entry + 1
        if kind not in inline:
            value = at + int.from_bytes(raw[value : value + width], "little")
        text = _text(kind, raw, value, left)
        if is_object:
            offset, size = key.unpack_from(raw, keys + number * key.size)
            text = f"{encode_basestring(raw[at + offset : at + offset + size].decode())}: {text}"
        texts.append(text)
    return f"{{{', '.join(texts)}}}" if is_object else f"[{', '.join(texts)}]"


def _length(raw: bytes, at: int) -> tuple[int, int]:
    """Read a length of seven bits per byte, lowest first; return it and its end."""
    size = shift = 0
    while True:
        size |= (raw[at] & 0x7F) << shift
        shift += 7
        at += 1
        if raw[at - 1] < 0x80:
            return size, at


def real_text(value: float) -> str:
    """Return a double with the fewest digits that identify it, as MySQL's ``my_gcvt`` writes them.

    :raises ValueError: the number is not valid in JSON.
    """
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    number = Decimal(repr(value))
    if not number or -_MOST_PLACES <= number.adjusted() < _MOST_PLACES:
        return f"{number:f}"
    return f"{number.normalize():e}".replace("e+", "e")


def _opaque(kind: int, data: bytes) -> str:
    if kind in _DECIMALS:
        return str(decimal(data[0], data[1]).read([data[2:]])[0].as_py())
    if kind in (_DATE, _TIME, *_MOMENTS):
        packed = _PACKED.unpack(data)[0]
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        whole, micros = packed >> 24, packed & 0xFFFFFF
        time = f"{clock(whole & 0x1FFFF if kind != _TIME else whole)}.{micros:06d}"
        if kind == _TIME:
            return f'"{sign}{time}"'
        months, day = divmod(whole >> 17, 32)
        date = f"{months // 13:04d}-{months % 13:02d}-{day:02d}"
        return f'"{date}"' if kind == _DATE else f'"{date} {time}"'
    encoded = b64encode(data).decode()
    # base64 has escaped line ends
    lines = "\\n".join(encoded[i : i + _LINE] for i in range(0, len(encoded), _LINE))
    return f'"base64:type{kind}:{lines}"'
