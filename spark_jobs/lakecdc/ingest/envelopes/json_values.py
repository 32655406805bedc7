"""Read JSON exactly, and with msgspec's speed where that is lossless.

Whole numbers of 64 bits become ``int``, all others a :class:`Number` with their text. A value is unreadable if an
object has a duplicate member, or with text after it, an invalid byte or a constant that is not JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from lakecdc.model.tokens import Number, deep_calls

Numbers = np.ndarray[Any, Any]
#: a JSON object with members of type int, text, :class:`Number`, bool, None, list or object
Object = dict[str, Any]
_QUOTE, _COLON, _BACKSLASH, _SPACE, _MINUS, _ZERO = b'":\\ -0'
#: number of texts scanned together, to fit into a processor's cache
TOGETHER = 512
#: errors of a decoder for a text that it cannot decode
NOT_DECODED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# bytes allowed between a value and the next token, and bytes after a zero that continue a number
_NAME_END = re.compile(rb"[ \t\r\n]*:")
_BEFORE_NUMBER, _IN_NUMBER = (bytes(byte in some for byte in range(256)) for some in (b":,[ \t\r\n", b"0123456789.eE"))
_MOST_DIGITS = 19
# levels of nesting parsed by recursion, and most levels parsed at all
_SHALLOW, _DEEPEST = 100, 1000
_HIGH, _LOW = r"\\ud[89ab][0-9a-f]{2}", r"\\ud[c-f][0-9a-f]{2}"
#: escaped half of a surrogate pair, in any case; after an odd number of backslashes it is text
HALF = rf"(?i)(?<!\\)((?:\\\\)*+)(?:{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW})"


class UnreadableError(ValueError):
    """A message cannot be read; has the short name of the broken rule, for the quarantine."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule


def parse_json(data: bytes | str) -> Any:
    """Parse JSON exactly.

    :raises UnreadableError: it is not JSON or not UTF-8, has duplicate members in one object, or is nested too deeply.
    """
    try:
        text = data.decode() if isinstance(data, bytes) else data
        if "\\ud" in text or "\\uD" in text:
            # it is not a character and cannot be UTF-8
            text = re.sub(HALF, r"\1?", text)
        if text.count("[") + text.count("{") <= _SHALLOW:
            return _EXACT.decode(text)
        with deep_calls():
            value = _EXACT.decode(text)
            if _is_deep(value, _DEEPEST):
                raise RecursionError
        return value
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UnreadableError("not-json", f"the value is not JSON: {reason}") from None


def try_parse_json(data: bytes | str | None) -> Any:
    """Parse JSON, such as a message's key; return None if it is not JSON."""
    if data is None:
        return None
    try:
        return parse_json(data)
    except UnreadableError:
        return None


class Texts:
    """JSON texts, scanned together and parsed one by one.

    :param values: values of type binary or string.
    :ivar texts: the texts; None for null.
    """

    def __init__(self, values: pa.Array) -> None:
        self._values = values.cast(pa.binary())
        self.texts: list[bytes | None] = self._values.to_pylist()
        self._members: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def members(self, place: int) -> int:
        """Count the members of a text's objects, including duplicates; -1 if it must be parsed exactly."""
        start = place - place % TOGETHER
        known = self._members.get(start)
        if known is None:
            letters, edges = letters_of(self._values.slice(start, TOGETHER))
            known = self._members[start] = _count_members(letters, edges)
        return known[place - start]

    def members_together(self, start: int) -> int:
        """Count the members of :data:`TOGETHER` texts from ``start``; -1 if one may need exact parsing."""
        return _count_together(letters_of(self._values.slice(start, TOGETHER))[0])

    def parsed(self, place: int) -> Any:
        """Parse a text; return None for null, and an :class:`UnreadableError` if it cannot be parsed."""
        text = self.texts[place]
        return None if text is None else _parse(text, self.members(place))


def parse_each(values: pa.Array) -> Iterator[Any]:
    """Parse each of many values; yield None for null, and an :class:`UnreadableError` for one that cannot be parsed."""
    texts = Texts(values)
    return map(texts.parsed, range(len(texts)))


def decoder(of: Any = Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of a msgspec type for texts that need no exact parsing; the caller counts their members."""
    return msgspec.json.Decoder(of, float_hook=Number)


def _parse(data: bytes, members: int) -> Any:
    if members >= 0:
        try:
            value = _QUICK.decode(data)
            if _has_members(value, members) and (
                members < _SHALLOW > data.count(b"[") or not _is_deep(value, _SHALLOW)
            ):
                return value
        except NOT_DECODED:
            pass
    try:
        return parse_json(data)
    except UnreadableError as error:
        return error


def _is_deep(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return False
    return levels == 0 or any(_is_deep(each, levels - 1) for each in value)


def _has_members(value: Any, expected: int) -> bool:
    """Check whether as many members were parsed as the text has, so there are no duplicates."""
    if not isinstance(value, dict):
        return _members(value) == expected
    # row images and the members beside them rarely contain objects
    count = len(value)
    for each in value.values():
        if type(each) is dict:
            count += len(each)
        elif type(each) is list:
            count += sum(len(one) for one in each if type(one) is dict)
    return count == expected or _members(value) == expected


def _members(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_members, value.values()))
    return sum(map(_members, value)) if isinstance(value, list) else 0


def letters_of(values: pa.Array) -> tuple[Numbers, Numbers]:
    """Return the bytes of values of type binary, and their starts and the last end."""
    _, bounds, letters = values.buffers()
    if letters is None:
        return np.zeros(0, np.uint8), np.zeros(len(values) + 1, np.int32)
    edges = np.frombuffer(bounds, np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(letters, np.uint8)[edges[0] : edges[-1]], edges - edges[0]


def _count_members(letters: Numbers, edges: Numbers) -> list[int]:
    """Count the members of objects in each text without parsing it; -1 for a text that must be parsed exactly.

    An unescaped quote before a colon ends the name of a member.
    """
    if len(letters) < 3:
        return [0] * (len(edges) - 1)
    is_quote, after = letters[:-1] == _QUOTE, letters[1:]
    ends = np.flatnonzero(is_quote & (after == _COLON))
    escaped = letters[ends - 1] == _BACKSLASH
    unclear = ends[escaped & (letters[ends - 2] == _BACKSLASH)]
    counts = np.diff(np.searchsorted(ends[~escaped], edges))
    spaced = np.flatnonzero(is_quote & (after <= _SPACE))
    spaced = spaced[(letters[spaced - 1] != _BACKSLASH) | (letters[spaced - 2] == _BACKSLASH)]
    if len(spaced):
        data = letters.tobytes()
        spaced = spaced[[_NAME_END.match(data, place + 1) is not None for place in spaced.tolist()]]
    begins, goes_on = (np.frombuffer(table, np.bool_) for table in (_BEFORE_NUMBER, _IN_NUMBER))
    zeros = np.flatnonzero((letters[1:-2] == _MINUS) & (letters[2:-1] == _ZERO)) + 1
    zeros = zeros[begins[letters[zeros - 1]] & ~goes_on[letters[zeros + 2]]]
    for places in (unclear, spaced, zeros):
        counts[np.searchsorted(edges, places, side="right") - 1] = -1
    numbers: list[int] = counts.tolist()
    return numbers


def _count_together(letters: Numbers) -> int:
    """Count the members of objects in all texts; -1 if one may need exact parsing."""
    if len(letters) < 3:
        return 0
    is_quote, ends = letters[:-1] == _QUOTE, letters[1:] == _COLON
    ends &= is_quote
    odd = letters[:-2] == _BACKSLASH
    odd &= ends[1:]
    is_quote &= letters[1:] <= _SPACE
    odd |= is_quote[1:]
    zeros = letters[1:-1] == _MINUS
    zeros &= letters[2:] == _ZERO
    # after a digit it is part of a date
    zeros &= letters[:-2] - _ZERO > 9
    odd |= zeros
    return -1 if odd.any() else int(np.count_nonzero(ends))


def _object(pairs: list[tuple[str, Any]]) -> Object:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a duplicate member")
    return members


def _integer(text: str) -> int | Number:
    """Return a whole number, or its text if the number would differ: a negative zero, more than 64 bits."""
    return Number(text) if text == "-0" or len(text) > _MOST_DIGITS else int(text)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number in JSON")


_EXACT = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=Number, parse_constant=_refuse_constant
)
_QUICK = decoder()
