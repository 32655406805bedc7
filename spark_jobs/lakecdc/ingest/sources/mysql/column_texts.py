"""The texts of many values of one column at once, each as :mod:`values` writes it, in a fraction of the time.

Bytes that are not such a value are left to the value's own codec, which explains them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Numbers = np.ndarray[Any, Any]

#: texts of some values from their bytes; raises ValueError or IndexError where it cannot tell them
Many = Callable[[Sequence[bytes]], "pa.Array"]


def integers(size: int, *, unsigned: bool) -> Many:
    def many(raws: Sequence[bytes]) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        octets = _octets(raws, size)
        wide = np.zeros((len(raws), 8), np.uint8)
        wide[:, :size] = octets
        if not unsigned:
            wide[:, size:] = np.where(octets[:, -1:] & 0x80, 255, 0)
        return pa.array(wide.view("<u8" if unsigned else "<i8").ravel()).cast(pa.string())

    return many


def bit_fields(size: int) -> Many:
    def many(raws: Sequence[bytes]) -> pa.Array:
        import pyarrow as pa

        return pa.array(_big_endian(_octets(raws, size)).astype("u8")).cast(pa.string())

    return many


def utf8(raws: Sequence[bytes]) -> pa.Array:
    import pyarrow as pa

    return pa.array(raws, pa.binary()).cast(pa.string())


def ascii_of_latin1(raws: Sequence[bytes]) -> pa.Array:
    """Read text in latin1 that is ASCII."""
    if not b"".join(raws).isascii():
        raise ValueError("not ASCII")
    return utf8(raws)


def members(size: int, texts: Sequence[str]) -> Many:
    """Return a reader of ENUM values, which are positions in ``texts``."""

    def many(raws: Sequence[bytes]) -> pa.Array:
        import pyarrow as pa

        places = _big_endian(_octets(raws, size)[:, ::-1])
        return pa.array(texts, pa.string()).take(pa.array(places))

    return many


def decimals(digits: Sequence[int], sizes: Sequence[int], scale: int) -> Many | None:
    """Return what reads decimals of at most 18 digits; None for larger ones.

    :param digits: of each group.
    :param sizes: bytes of each group.
    """
    if sum(digits) > 18:
        return None

    def many(raws: Sequence[bytes]) -> pa.Array:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        octets = _octets(raws, sum(sizes)).copy()
        # a negative number has all its bits turned round, the sign's too
        negative = octets[:, 0] & 0x80 == 0
        octets[negative] ^= 0xFF
        octets[:, 0] ^= 0x80
        value = np.zeros(len(raws), np.int64)
        at = 0
        for count, size in zip(digits, sizes, strict=True):
            value = value * 10**count + _big_endian(octets[:, at : at + size])
            at += size
        text = pa.array(value // 10**scale).cast(pa.string())
        if scale:
            rest = pc.utf8_lpad(pa.array(value % 10**scale).cast(pa.string()), scale, "0")
            text = pc.binary_join_element_wise(text, rest, ".")
        return pc.if_else(pa.array(negative), pc.binary_join_element_wise("-", text, ""), text)

    return many


def days(raws: Sequence[bytes]) -> pa.Array:
    number = _big_endian(_octets(raws, 3)[:, ::-1])
    return _written([(number >> 9, 4), "-", (number >> 5 & 15, 2), "-", (number & 31, 2)])


def moments(places: int) -> Many:
    """Return what reads a DATETIME; see :func:`values.moment`.

    :param places: digits after the second.
    """

    def many(raws: Sequence[bytes]) -> pa.Array:
        octets = _octets(raws, 5 + (places + 1) // 2)
        value = _big_endian(octets[:, :5]) & 0x7FFFFFFFFF
        months = value >> 22
        date = months // 13, months % 13, value >> 17 & 31
        clock = value >> 12 & 31, value >> 6 & 63, value & 63
        return _moment(date, clock, _big_endian(octets[:, 5:]), places)

    return many


def instants(places: int) -> Many:
    """Return what reads a TIMESTAMP; see :func:`values.instant`.

    :param places: digits after the second.
    """

    def many(raws: Sequence[bytes]) -> pa.Array:
        octets = _octets(raws, 4 + (places + 1) // 2)
        seconds, rest = _big_endian(octets[:, :4]), _big_endian(octets[:, 4:])
        day = (seconds // 86400).astype("M8[D]")
        months = day.astype("M8[M]")
        number = months.astype("i8")
        date = 1970 + number // 12, number % 12 + 1, (day - months).astype("i8") + 1
        # all zero is the zero date
        there = (seconds != 0) | (rest != 0)
        year, month, in_month = (part * there for part in date)
        of_day = seconds % 86400
        return _moment((year, month, in_month), (of_day // 3600, of_day // 60 % 60, of_day % 60), rest, places)

    return many


def _moment(date: tuple[Numbers, ...], clock: tuple[Numbers, ...], rest: Numbers, places: int) -> pa.Array:
    parts: list[str | tuple[Numbers, int]] = [(date[0], 4), "-", (date[1], 2), "-", (date[2], 2), " "]
    parts += [(clock[0], 2), ":", (clock[1], 2), ":", (clock[2], 2)]
    # two digits a byte, the last of which may be no declared one
    return _written([*parts, ".", (rest // 10 ** (places % 2), places)] if places else parts)


def _octets(raws: Sequence[bytes], size: int) -> Numbers:
    """Return values of one size, a row each."""
    import numpy as np

    return np.frombuffer(b"".join(raws), np.uint8).reshape(len(raws), size)


def _big_endian(octets: Numbers) -> Numbers:
    import numpy as np

    found = np.zeros(len(octets), np.int64 if octets.shape[1] < 8 else np.uint64)
    for place in range(octets.shape[1]):
        found = (found << 8) | octets[:, place].astype(found.dtype)
    return found


def _written(parts: Sequence[str | tuple[Numbers, int]]) -> pa.Array:
    """Return texts of one width.

    :param parts: what stands between, or numbers and how many digits they have.
    :raises ValueError: a number has more digits.
    """
    import numpy as np
    import pyarrow as pa

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
