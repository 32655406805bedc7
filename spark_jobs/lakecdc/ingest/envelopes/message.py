"""Define a message, the event that its envelope tells, and how JSON is read exactly.

JSON is read for its own sake here: numbers keep their text, a member that comes twice makes the message unreadable, and
so does text behind the value, an invalid byte or a constant that JSON does not have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakecdc.ingest.order import LAST_TIME, RANK_CHANGE, order_key
from lakecdc.model.columns import MisfitError, Number, parse_timestamp

#: a JSON object, its members as text, :class:`Number`, bool, None, lists and objects
Object = dict[str, Any]
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_FIRST_MOMENT = -62_135_596_800_000_000
_INTEGER = re.compile(r"[+-]?0*[0-9]{1,19}")
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


@dataclass(frozen=True, slots=True)
class Message:
    """A message as a source delivers it.

    :param timestamp_us: its own time, microseconds since 1970.
    :param arrival: its place among the messages of its partition or file, from 0.
    """

    value: bytes | None
    key: bytes | None = None
    topic: str | None = None
    timestamp_us: int | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    arrival: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an event in its source's log.

    :param position: of the commit, unsigned 64 bits.
    :param ordinal: within the transaction, unsigned 64 bits.
    :param rank: ``RANK_READ`` for a read of a snapshot, ``RANK_CHANGE`` for a change.
    :param time_us: when the source committed, microseconds since 1970; None if the message does not tell.
    """

    position: int = 0
    ordinal: int = 0
    rank: int = RANK_CHANGE
    time_us: int | None = None

    @property
    def source_time(self) -> int | None:
        """Return the source time, or None for one that is not within the years 1 to 9999."""
        within = self.time_us is not None and _FIRST_MOMENT <= self.time_us <= LAST_TIME * 1000 + 999
        return self.time_us if within else None

    def order(self, epoch: int, arrival: int) -> str:
        """Return the order key; a time without place in it counts as the nearest one that has."""
        millis = _towards_zero(self.time_us or 0, 1000)
        return order_key(epoch, self.position, self.ordinal, self.rank, min(max(millis, 0), LAST_TIME), arrival)


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a message tells of one row, before any column is typed.

    :param op: ``r``, ``c``, ``u``, ``d``, ``t`` (TRUNCATE), ``x`` (tombstone); None for a message that is known not to
        be a row event, and for one with a problem.
    :param problem: why the message cannot be read, as rule and reason.
    :param source_table: ``schema.table`` or ``database.table``; the topic where the format does not tell it.
    :param before: the row before, or its key or changed columns only.
    :param after: the row after.
    :param record_key: the message's key.
    :param old_key: the key that the row had before, where the format links the two.
    :param schema: the row's schema in the format's own notation.
    :param key_names: columns of the source's primary key, where the message itself tells them.
    """

    op: str | None
    place: Place = Place()
    source_table: str | None = None
    before: Object | None = None
    after: Object | None = None
    record_key: Object | None = None
    old_key: Object | None = None
    schema: Any = None
    key_names: tuple[str, ...] | None = None
    problem: tuple[str, str] | None = None


#: reads the rows of a message of one format, given its parsed value (None for a null or missing one); raises
#: UnreadableError for a message that is none of the format's
Rows = Callable[[Message, Any], Iterator[Envelope]]


def parse_json(data: bytes | str) -> Any:
    """Parse JSON exactly.

    :raises UnreadableError: it is not JSON, or not UTF-8, has a member twice in one object, or is nested too deeply.
    """
    try:
        text = data.decode() if isinstance(data, bytes) else data
        if "\\ud" in text or "\\uD" in text:
            # it is not a character, and no UTF-8 holds it
            text = _HALF.sub(r"\1?", text)
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError("not-json", f"the value is not JSON: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _object(pairs: list[tuple[str, Any]]) -> Object:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a member twice")
    return found


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number in JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=Number, parse_float=Number, parse_constant=_refuse_constant
)


def try_parse_json(data: bytes | str | None) -> Any:
    """Parse JSON, such as a message's key; None for what is not JSON."""
    if data is None:
        return None
    try:
        return parse_json(data)
    except UnreadableError:
        return None


def to_text(value: Any) -> str:
    """Return JSON text of a parsed value, without white space, its numbers as they were written."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        members = (f"{json.dumps(name, ensure_ascii=False)}:{to_text(each)}" for name, each in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def as_object(value: Any) -> Object | None:
    """Return a parsed value if it is an object."""
    return value if isinstance(value, dict) else None


def member(value: Any, *path: str) -> Any:
    """Return a member of nested objects; None if one of them is missing or not an object."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text(value: Any, *path: str) -> str | None:
    """Return a member as text: that of a number or of nested JSON too; None where there is none."""
    found = member(value, *path)
    return None if found is None else str(found) if isinstance(found, str) else to_text(found)


def integer(value: Any, *path: str) -> int | None:
    """Return a member that is a whole number of 64 bits, as a number or as text; else None."""
    found = text(value, *path)
    return whole(found)


def whole(digits: str | None) -> int | None:
    """Return the whole number of 64 bits that text spells, else None."""
    if digits is None or not _INTEGER.fullmatch(digits):
        return None
    number = int(digits)
    return number if _LOWEST <= number <= _HIGHEST else None


def last_digits(name: str | None) -> int | None:
    """Return the number at the end of text such as ``binlog.000012``."""
    return whole((name or "")[len((name or "").rstrip("0123456789")) :])


def times(number: int | None, factor: int, more: int | None = 0) -> int | None:
    """Return a number some times, and another one on top; None beyond 63 bits."""
    if number is None or more is None:
        return None
    product = number * factor + more
    return product if _LOWEST <= product <= _HIGHEST else None


def instant(moment: str | None) -> int | None:
    """Return the microseconds since 1970 of a moment in ISO-8601, else None."""
    if moment is None:
        return None
    try:
        return parse_timestamp(moment, local=False)
    except MisfitError:
        return None


def first(*numbers: int | None) -> int | None:
    """Return the first number that is known."""
    return next((number for number in numbers if number is not None), None)


def placed(number: int | None) -> int:
    """Return a coordinate of the order key; a negative number is not a place, and would lie above all of them."""
    return max(number or 0, 0)


def dotted(*names: str | None) -> str:
    """Return the full name of a source table."""
    return ".".join(name for name in names if name is not None)


def names_of(value: Any) -> tuple[str, ...] | None:
    """Return a parsed list of names."""
    return tuple(str(name) for name in value) if isinstance(value, list) and None not in value else None


def refuse_bad_names(*images: Object | None) -> tuple[str, str] | None:
    """Return the problem of row images with a member whose name cannot be a column's; None without one."""
    for image in images:
        if image is not None and any(not name or "\0" in name for name in image):
            return "bad-name", "a member has no name, or one with a null character"
    return None


def _towards_zero(number: int, divisor: int) -> int:
    return number // divisor if number >= 0 else -(-number // divisor)
