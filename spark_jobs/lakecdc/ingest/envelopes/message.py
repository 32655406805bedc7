"""Define messages and the events in their envelopes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from lakecdc.ingest.envelopes.json_values import Object, UnreadableError, try_parse_json
from lakecdc.model.columns import parse_number, parse_timestamp
from lakecdc.model.order import LAST_TIME, RANK_CHANGE, order_key
from lakecdc.model.tokens import MisfitError, Number, to_text

_LOWEST = -(2**63)
#: highest whole number of 64 bits
HIGHEST = 2**63 - 1
#: range of the years 1 to 9999 in microseconds since 1970
FIRST_MOMENT, LAST_MOMENT = -62_135_596_800_000_000, LAST_TIME * 1000 + 999
_INTEGER = re.compile(r"[+-]?0*[0-9]{1,19}")


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message of a source.

    :param timestamp_us: the message's time, microseconds since 1970.
    :param arrival: the place in its partition or file, from 0.
    """

    value: bytes | None
    key: bytes | None = None
    topic: str | None = None
    timestamp_us: int | None = None
    headers: Mapping[str, bytes] | None = None
    arrival: int = 0


class Place(msgspec.Struct, frozen=True, gc=False):
    """The place of an event in its source's log.

    :param position: of the commit, unsigned 64 bits.
    :param ordinal: within the transaction, unsigned 64 bits.
    :param rank: ``RANK_READ`` for a row of a snapshot, ``RANK_CHANGE`` for a change.
    :param time_us: commit time at the source, microseconds since 1970; None if unknown.
    """

    position: int = 0
    ordinal: int = 0
    rank: int = RANK_CHANGE
    time_us: int | None = None

    @property
    def source_time(self) -> int | None:
        """Return the source time, or None outside of the years 1 to 9999."""
        within = self.time_us is not None and FIRST_MOMENT <= self.time_us <= LAST_MOMENT
        return self.time_us if within else None

    def order(self, epoch: int, arrival: int) -> str:
        """Return the order key; a time out of its range counts as the nearest one in range."""
        millis = min(max((self.time_us or 0) // 1000, 0), LAST_TIME)
        return order_key(epoch, self.position, self.ordinal, self.rank, millis, arrival)


class Keys(msgspec.Struct, frozen=True, gc=False):
    """The keys beside a message's value, parsed lazily because they are rarely needed.

    :param old: the row's old key.
    :param unwrapped: returns the key in a value with a schema.
    """

    record: bytes | None
    old: bytes | None = None
    unwrapped: Callable[[Any], Any] = lambda value: value

    @classmethod
    def of(cls, message: Message) -> Keys | None:
        """Return the key of a message, for formats whose keys have no schema."""
        return None if message.key is None else cls(message.key)

    def record_key(self) -> Object | None:
        return as_object(self.unwrapped(try_parse_json(self.record)))

    def old_key(self) -> Object | None:
        return as_object(self.unwrapped(try_parse_json(self.old)))


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """One row of a message, before columns are typed.

    :param op: ``r``, ``c``, ``u``, ``d``, ``t`` (TRUNCATE), ``x`` (tombstone); None for a message that is not a row
        event, and for one with a problem.
    :param problem: why the message cannot be read, as rule and reason; names of members are checked separately.
    :param source_table: ``schema.table`` or ``database.table``; the topic if the format lacks it.
    :param before: the row before, or only its key or changed columns.
    :param keys: reads the message's key and the row's old key, if the format links the two; None if the format has
        neither.
    :param schema: the row's schema in the format's own notation.
    :param key_names: columns of the source's primary key, if the message has them.
    """

    op: str | None
    place: Place = Place()
    source_table: str | None = None
    before: Object | None = None
    after: Object | None = None
    keys: Keys | None = None
    schema: Any = None
    key_names: tuple[str, ...] | None = None
    problem: tuple[str, str] | None = None


#: reads the rows of a message of one format, given its parsed value (None for a null or missing one); raises
#: UnreadableError for a message of another format
Rows = Callable[[Message, Any], Iterable[Envelope]]


def read_message(rows: Rows, message: Message, value: Any) -> Iterator[Envelope]:
    """Read the rows of a message; every message has at least one envelope.

    :param value: the parsed value, or why it cannot be parsed.
    """
    try:
        if isinstance(value, UnreadableError):
            raise value
        yield from map(refuse_bad_names, rows(message, value))
    except UnreadableError as error:
        yield Envelope(None, source_table=message.topic, problem=(error.rule, str(error)))


def as_object(value: Any) -> Object | None:
    """Return a parsed value if it is an object."""
    return value if isinstance(value, dict) else None


def member(value: Any, *path: str) -> Any:
    """Return a member of nested objects; None if one of them is missing or not an object."""
    for name in path:
        if type(value) is not dict:
            return None
        value = value.get(name)
    return value


def text(value: Any, *path: str) -> str | None:
    """Return a member as text, also if it is a number or nested JSON; None if it is missing."""
    return as_text(member(value, *path))


def as_text(value: Any) -> str | None:
    """Return a value as text, also if it is a number or nested JSON; None for null."""
    if type(value) is str or value is None:
        return value
    return str(value) if isinstance(value, str) else to_text(value)


def integer(value: Any, *path: str) -> int | None:
    """Return a member that is a whole number of 64 bits, as a number or as text; else None."""
    return as_integer(member(value, *path))


def as_integer(value: Any) -> int | None:
    """Return a value that is a whole number of 64 bits, or a text of one; else None."""
    if type(value) is int:
        return value if _LOWEST <= value <= HIGHEST else None
    if isinstance(value, Number):
        try:
            # such as 1.7e12
            number = int(parse_number(value))
        except MisfitError:
            return None
        return number if _LOWEST <= number <= HIGHEST else None
    return None if value is None else whole((as_text(value) or "").strip())


def whole(digits: str | None) -> int | None:
    """Return the whole number of 64 bits in a text, else None."""
    if digits is None or not _INTEGER.fullmatch(digits):
        return None
    number = int(digits)
    return number if _LOWEST <= number <= HIGHEST else None


def last_digits(name: str | None) -> int | None:
    """Return the number at the end of text such as ``binlog.000012``."""
    return whole((name or "")[len((name or "").rstrip("0123456789")) :])


def times(number: int | None, factor: int, more: int | None = 0) -> int | None:
    """Return ``number * factor + more``; None beyond 63 bits."""
    if number is None or more is None:
        return None
    product = number * factor + more
    return product if _LOWEST <= product <= HIGHEST else None


def instant(moment: str | None) -> int | None:
    """Return the microseconds since 1970 of a moment in ISO-8601, else None."""
    if moment is None:
        return None
    try:
        return parse_timestamp(moment, local=False)
    except MisfitError:
        return None


def moment_of(text: str | None) -> int | None:
    """Return the microseconds since 1970 of a moment that orders a message.

    :raises UnreadableError: it is not a moment in ISO-8601.
    """
    moment = instant(text)
    if text is not None and moment is None:
        raise UnreadableError("no-order", f"its time {text!r} is not a moment in ISO-8601")
    return moment


def first(*numbers: int | None) -> int | None:
    """Return the first known number."""
    for number in numbers:
        if number is not None:
            return number
    return None


def placed(number: int | None) -> int:
    """Return a coordinate of the order key; a negative number is not a place, and would sort above all others."""
    return max(number or 0, 0)


def dotted(*names: str | None) -> str:
    return ".".join([name for name in names if name is not None])


def names_of(value: Any) -> tuple[str, ...] | None:
    """Return a parsed list of names."""
    return tuple(str(name) for name in value) if isinstance(value, list) and None not in value else None


def refuse_bad_names(envelope: Envelope) -> Envelope:
    """Return the envelope, with a problem if a member of a row image has an invalid column name."""
    for image in (envelope.before, envelope.after):
        if image is not None and envelope.problem is None and ("" in image or "\0" in "".join(image)):
            reason = "a member has no name, or one with a null character"
            return msgspec.structs.replace(envelope, op=None, problem=("bad-name", reason))
    return envelope
