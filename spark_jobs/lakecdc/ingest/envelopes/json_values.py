"""Read JSON exactly, and as fast as msgspec does where that loses nothing.

Whole numbers of 64 bits become ``int``, all others a :class:`Number` that keeps their text. A member that comes twice
in one object makes a value unreadable, and so does text behind it, an invalid byte or a constant that JSON does not
have.
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
#: a JSON object, its members as int, text, :class:`Number`, bool, None, lists and objects
Object = dict[str, Any]
_QUOTE, _COLON, _BACKSLASH, _SPACE, _MINUS, _ZERO = b'":\\ -0'
#: texts that are looked through together, so that a processor's cache holds them
TOGETHER = 512
#: what a decoder raises for a text that it cannot decode
NOT_DECODED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# bytes that may stand between a value and what follows it, and those behind a zero that make it another number
_NAME_END = re.compile(rb"[ \t\r\n]*:")
_BEFORE_NUMBER, _IN_NUMBER = (bytes(byte in some for byte in range(256)) for some in (b":,[ \t\r\n", b"0123456789.eE"))
_MOST_DIGITS = 19
# levels of nesting that plain Python follows by calling itself however deep it is already, and that are read at most
_SHALLOW, _DEEPEST = 100, 1000
_HIGH, _LOW = r"\\ud[89ab][0-9a-f]{2}", r"\\ud[c-f][0-9a-f]{2}"
#: half of a surrogate pair, escaped, whatever its letters' case; behind an odd number of backslashes it would be text
HALF = rf"(?i)(?<!\\)((?:\\\\)*+)(?:{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW})"


class UnreadableError(ValueError):
    """A message that cannot be read, with the short name of the rule that it broke, for the quarantine."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule


def parse_json(data: bytes | str) -> Any:
    """Parse JSON exactly.

    :raises UnreadableError: it is not JSON, or not UTF-8, has a member twice in one object, or is nested too deeply.
    """
    try:
        text = data.decode() if isinstance(data, bytes) else data
        if "\\ud" in text or "\\uD" in text:
            # it is not a character, and no UTF-8 holds it
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
    """Parse JSON, such as a message's key; None for what is not JSON."""
    if data is None:
        return None
    try:
        return parse_json(data)
    except UnreadableError:
        return None


class Texts:
    """JSON texts, looked through together and parsed one by one.

    :param values: of type binary or string.
    :ivar texts: each of them; None for null.
    """

    def __init__(self, values: pa.Array) -> None:
        self._values = values.cast(pa.binary())
        self.texts: list[bytes | None] = self._values.to_pylist()
        self._members: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def members(self, place: int) -> int:
        """Count the members of a text's objects, duplicates included; -1 if it is to be parsed exactly."""
        start = place - place % TOGETHER
        known = self._members.get(start)
        if known is None:
            letters, edges = _letters(self._values.slice(start, TOGETHER))
            known = self._members[start] = _count_members(letters, edges)
        return known[place - start]

    def members_together(self, start: int) -> int:
        """Count the members of :data:`TOGETHER` texts from one on; -1 if any of them may have to be parsed exactly."""
        return _count_together(_letters(self._values.slice(start, TOGETHER))[0])

    def parsed(self, place: int) -> Any:
        """Parse a text; return None for null, and an :class:`UnreadableError` for what cannot be parsed."""
        text = self.texts[place]
        return None if text is None else _parse(text, self.members(place))


def parse_each(values: pa.Array) -> Iterator[Any]:
    """Parse each of many values; yield None for null, and an :class:`UnreadableError` for one that cannot be parsed."""
    texts = Texts(values)
    return map(texts.parsed, range(len(texts)))


def decoder(of: Any = Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of a msgspec type, for texts that need no exact parsing; their members are to be counted."""
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
    """Check whether as many members were parsed as the text has, so that none came twice."""
    if not isinstance(value, dict):
        return _members(value) == expected
    # the row images and what stands beside them have no objects in them, most of the time
    found = len(value)
    for each in value.values():
        if type(each) is dict:
            found += len(each)
        elif type(each) is list:
            found += sum(len(one) for one in each if type(one) is dict)
    return found == expected or _members(value) == expected


def _members(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_members, value.values()))
    return sum(map(_members, value)) if isinstance(value, list) else 0


def _letters(values: pa.Array) -> tuple[Numbers, Numbers]:
    """Return the bytes of some texts, and where each begins and the last one ends."""
    _, bounds, letters = values.buffers()
    if letters is None:
        return np.zeros(0, np.uint8), np.zeros(len(values) + 1, np.int32)
    edges = np.frombuffer(bounds, np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(letters, np.uint8)[edges[0] : edges[-1]], edges - edges[0]


def _count_members(letters: Numbers, edges: Numbers) -> list[int]:
    """Count the members of objects in each text, without parsing it; -1 for a text to be parsed exactly anyway.

    A quote in front of a colon ends the name of a member, unless it is escaped.
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
    found: list[int] = counts.tolist()
    return found


def _count_together(letters: Numbers) -> int:
    """Count the members of objects in all texts; -1 if any of them may have to be parsed exactly."""
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
    # behind a digit it is a part of a date
    zeros &= letters[:-2] - _ZERO > 9
    odd |= zeros
    return -1 if odd.any() else int(np.count_nonzero(ends))


def _object(pairs: list[tuple[str, Any]]) -> Object:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("an object has a member twice")
    return members


def _integer(text: str) -> int | Number:
    """Return a whole number, or its text if that would be another one: a negative zero, more digits than 64 bits."""
    return Number(text) if text == "-0" or len(text) > _MOST_DIGITS else int(text)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number in JSON")


_EXACT = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=Number, parse_constant=_refuse_constant
)
_QUICK = decoder()
