"""Read JSON exactly, and as fast as msgspec does where that loses nothing.

Whole numbers of 64 bits become ``int``, all others a :class:`Number` that keeps their text. A member that comes twice
in one object makes a value unreadable, and so does text behind it, an invalid byte or a constant that JSON does not
have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from lakecdc.model.tokens import Number, deep_calls

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Numbers = np.ndarray[Any, Any]

#: a JSON object, its members as int, text, :class:`Number`, bool, None, lists and objects
Object = dict[str, Any]
_QUOTE, _COLON, _BACKSLASH, _SPACE, _MINUS, _ZERO = b'":\\ -0'
# bytes that may stand between a value and what follows it, and those behind a zero that make it another number
_NAME_END = re.compile(rb"[ \t\r\n]*:")
_BEFORE_NUMBER, _IN_NUMBER = tuple(b":,[ \t\r\n"), tuple(b"0123456789.eE")
_MOST_DIGITS = 19
# levels of nesting that plain Python follows by calling itself however deep it is already, and that are read at most
_SHALLOW, _DEEPEST = 100, 1000
_HIGH, _LOW = r"\\ud[89ab][0-9a-f]{2}", r"\\ud[c-f][0-9a-f]{2}"
# half of a surrogate pair, escaped; behind an odd number of backslashes it would be text
_HALF = re.compile(rf"(?<!\\)((?:\\\\)*+)(?:{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW})", re.IGNORECASE)


class UnreadableError(ValueError):
    """A message that cannot be read.

    :param rule: short name of what it broke, for the quarantine.
    """

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
            text = _HALF.sub(r"\1?", text)
        if text.count("[") + text.count("{") <= _SHALLOW:
            return _EXACT.decode(text)
        with deep_calls():
            value = _EXACT.decode(text)
            if _is_deep(value, _DEEPEST):
                raise RecursionError
        return value
    except (ValueError, RecursionError) as error:
        raise UnreadableError("not-json", f"the value is not JSON: {_reason(error)}") from None


def try_parse_json(data: bytes | str | None) -> Any:
    """Parse JSON, such as a message's key; None for what is not JSON."""
    if data is None:
        return None
    try:
        return parse_json(data)
    except UnreadableError:
        return None


def parse_each(values: pa.Array) -> Iterator[Any]:
    """Parse each of many values; yield None for null, and an :class:`UnreadableError` for one that cannot be parsed.

    :param values: of type binary or string.
    """
    import numpy as np
    import pyarrow as pa

    if not (pa.types.is_binary(values.type) or pa.types.is_string(values.type)):
        values = values.cast(pa.binary())
    _, bounds, letters = values.buffers()
    count = len(values)
    if letters is None:
        yield from [None] * count
        return
    edges = np.frombuffer(bounds, np.int32)[values.offset : values.offset + count + 1]
    data = memoryview(letters)[edges[0] : edges[-1]].tobytes()
    edges = edges - edges[0]
    members, doubtful = _count_members(np.frombuffer(data, np.uint8), data, edges)
    valid = values.is_valid().to_pylist() if values.null_count else [True] * count
    places = edges.tolist()
    for begin, end, expected, doubt, is_valid in zip(
        places[:-1], places[1:], members.tolist(), doubtful.tolist(), valid, strict=True
    ):
        yield _parse(data[begin:end], expected, doubt) if is_valid else None


def _parse(data: bytes, members: int, doubtful: bool) -> Any:
    if not doubtful:
        try:
            value = _QUICK.decode(data)
            if _has_members(value, members) and (
                members < _SHALLOW > data.count(b"[") or not _is_deep(value, _SHALLOW)
            ):
                return value
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    try:
        return parse_json(data)
    except UnreadableError as error:
        return error


def _is_deep(value: Any, levels: int) -> bool:
    """Check whether objects and arrays are nested too deeply."""
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
    return found == expected or _members(value) == expected


def _members(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_members, value.values()))
    return sum(map(_members, value)) if isinstance(value, list) else 0


def _count_members(letters: Numbers, data: bytes, edges: Numbers) -> tuple[Numbers, Numbers]:
    """Count the members of objects in each text, without parsing it, and find those to be parsed exactly anyway.

    A quote in front of a colon ends the name of a member, unless it is escaped.
    """
    import numpy as np

    count = len(edges) - 1
    doubtful = np.zeros(count, np.bool_)
    if len(letters) < 3:
        return np.zeros(count, np.int64), doubtful
    quotes = np.flatnonzero(letters[:-1] == _QUOTE)
    after = letters[quotes + 1]
    escaped = letters[quotes - 1] == _BACKSLASH
    twice = escaped & (letters[quotes - 2] == _BACKSLASH)
    ends_name = after == _COLON
    found = np.searchsorted(quotes[ends_name & ~escaped], edges)
    unclear = quotes[ends_name & twice]
    spaced = quotes[(after <= _SPACE) & (~escaped | twice)]
    spaced = spaced[[_NAME_END.match(data, place + 1) is not None for place in spaced.tolist()]]
    zeros = np.flatnonzero((letters[1:-2] == _MINUS) & (letters[2:-1] == _ZERO)) + 1
    zeros = zeros[np.isin(letters[zeros - 1], _BEFORE_NUMBER) & ~np.isin(letters[zeros + 2], _IN_NUMBER)]
    for places in (unclear, spaced, zeros):
        doubtful[np.searchsorted(edges, places, side="right") - 1] = True
    return np.diff(found), doubtful


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


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
_QUICK = msgspec.json.Decoder(float_hook=Number)
