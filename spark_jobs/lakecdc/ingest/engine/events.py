"""Read the events of one table from messages, before columns are typed.

The first attempt knows only the table, and sets aside messages that a task cannot judge, such as one with a new column
(:class:`QuickReader`). After a first pass over all messages, each is an event of the table, a rejected message, or a
message of another table (:class:`JudgedReader`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.engine.alike import Alike, Shape, can_be_alike
from lakecdc.ingest.engine.decoding import Decoding, Judged
from lakecdc.ingest.engine.layout import Places
from lakecdc.ingest.engine.schemas import OTHER_SCHEMA, SchemaCheck
from lakecdc.ingest.envelopes import debezium
from lakecdc.ingest.envelopes.json_values import Object, Texts, UnreadableError
from lakecdc.ingest.envelopes.message import Envelope, Keys, Message, Place, refuse_bad_names
from lakecdc.ingest.formats.message_columns import (
    PLACED,
    agrees,
    has_key_of,
    has_old_key,
    read_messages,
    record_keys,
)

#: op of a message that is set aside or rejected and is not a row event
ODD = "odd"
NO_ROW: Object = {}
_NO_JSON, _NO_ROW_EVENT = "text that is not JSON", "a message that is not a plain row event"
_ROWS = ("r", "c", "u", "d")
# messages searched for a shape, and the largest share of messages that may have another one
_LOOKED_AT, _MOST_LEFT = 100, 0.7
_OF_FILE, _TOMBSTONE, _NO_PLACE = Message(b""), Message(None), Place()

# message's place, op, row (empty for deletes), image that has the key, row before an update, keys, place in the log,
# source table
_Event = tuple[int, str, Object, Object, Object, Keys | None, Place, str | None]


#: returns the values of a column in row images, as parsed from JSON; None if an image lacks it
Images = Callable[[str], list[Any]]


def _of_objects(images: Sequence[Object]) -> Images:
    return lambda name: [image.get(name) for image in images]


@dataclass(frozen=True)
class Events:
    """The events of some messages, as columns.

    :param messages: places of their messages.
    :param images: rows; deletes have no values.
    :param key_images: images with the keys.
    :param befores: rows before updates; other events have no values.
    :param odd: why events are set aside, by place here.
    :param rejected: rule and reason why events cannot be applied, by place here.
    :param schemas: texts of the rows' schemas, if schemas encode columns differently.
    :param placed: order keys of tombstones that are deletes, by place here.
    """

    messages: Sequence[int]
    ops: Sequence[str]
    images: Images
    key_images: Images
    befores: Images
    keys: Sequence[Keys | None]
    places: Places
    source_tables: Sequence[str | None]
    odd: dict[int, str] = field(default_factory=dict)
    rejected: dict[int, tuple[str, str]] = field(default_factory=dict)
    schemas: Sequence[str | None] | None = None
    placed: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Sequence[_Event], **more: Any) -> Events:
        """Create events from tuples, with further parts."""
        parts: Sequence[Sequence[Any]] = list(zip(*events, strict=True)) or [()] * 8
        messages, ops, *objects, keys, places, tables = parts
        images, key_images, befores = map(_of_objects, objects)
        return cls(messages, ops, images, key_images, befores, keys, Places.of(places), tables, **more)

    def set_aside(self, places: Iterable[int], reason: str) -> None:
        """Set row events aside; keep an earlier reason."""
        for place in places:
            if self.ops[place] != ODD:
                self.odd.setdefault(place, reason)


class QuickReader:
    """Read messages when only the table is known."""

    def __init__(self, decoding: Decoding) -> None:
        self._of = decoding
        self._rows = decoding.traits.rows(decoding.reading)
        self._known = decoding.known_names
        self._schemas = SchemaCheck(decoding)
        # the key in messages must be the table's key
        self._key = frozenset(decoding.key) if decoding.target.keyed and not decoding.target.key else None
        self._has_row_keys, self._is_whole = decoding.traits.row_keys, decoding.traits.whole
        self._own: dict[tuple[str | None, str | None], bool] = {}
        self._shape: Shape | None = None

    def read(self, messages: pa.RecordBatch) -> Iterator[Events]:
        """Yield the events of messages: those of the common shape, then all others."""
        payloads, expected = self._schemas.payloads(messages)
        messages, values = payloads.messages, payloads.values
        texts, left = Texts(values), [*range(len(values))]
        if self._is_whole:
            candidates = self._candidates(messages, values, expected)
            shape = self._shape or self._find_shape(messages, texts, candidates)
            if shape is not None:
                events, left = self._read_alike(messages, texts, shape, candidates)
                yield events
            # if most messages have another shape, search for a new one
            self._shape = shape if len(left) <= _MOST_LEFT * len(values) else None
        yield self._read_each(messages, texts, expected, left)

    def _candidates(self, messages: pa.RecordBatch, values: pa.Array, expected: Sequence[bool] | None) -> list[int]:
        """Return the places of messages that may have the shape: rows of one schema, without another key."""
        is_candidate = values.is_valid()
        if self._of.keyed:
            is_candidate = pc.and_(is_candidate, pc.invert(has_old_key(messages)))
            if self._key is not None:
                is_candidate = pc.and_(is_candidate, has_key_of(messages, self._key))
        if expected is not None:
            is_candidate = pc.and_(is_candidate, pa.array(expected, pa.bool_()))
        places: list[int] = np.flatnonzero(is_candidate.to_numpy(zero_copy_only=False)).tolist()
        return places

    def _find_shape(self, messages: pa.RecordBatch, texts: Texts, candidates: Sequence[int]) -> Shape | None:
        """Return the shape of the first event with a row; None if there is none."""
        topics = self._topics(messages)
        sample = before = None
        for place in candidates[:_LOOKED_AT]:
            value, message = texts.parsed(place), Message(b"", topic=topics[place])
            for envelope in debezium.read(message, value) if isinstance(value, dict) else ():
                event, odd = self._event(place, message, envelope)
                if event is None or odd is not None:
                    continue
                sample = sample or (value if can_be_alike(value) else None)
                before = before or envelope.before
            if sample and before:
                break
        return None if sample is None else Shape(sample, before, self._known)

    def _read_alike(
        self, messages: pa.RecordBatch, texts: Texts, shape: Shape, candidates: Sequence[int]
    ) -> tuple[Events, list[int]]:
        """Return the events of the shape, and the places of the remaining messages."""
        topics, of, table = self._topics(messages), self._of, shape.source_table
        own = of.target.source_column
        if not all(self._is_own(table, topic) for topic in {*topics}):
            candidates = [place for place in candidates if self._is_own(table, topics[place])]
        names, key = ([n for n in some if n != own] for some in ([f.name for f in of.fields], of.key))
        events = Alike(shape, names, key)
        events.read(texts, candidates)
        count = len(events.messages)
        keys: Sequence[Keys | None] = [None] * count
        if of.keyed:
            records = record_keys(messages)
            keys = [records[place] for place in events.messages]
        read = {*events.messages}
        left = [place for place in range(len(messages)) if place not in read]
        alike = Events(
            events.messages,
            events.ops,
            events.rows.__getitem__,
            events.keys.__getitem__,
            events.befores.__getitem__,
            keys,
            events.places(),
            [table] * count,
        )
        return alike, left

    def _topics(self, messages: pa.RecordBatch) -> list[str | None]:
        topics: list[str | None] = [None] * len(messages)
        return messages.column("topic").to_pylist() if self._of.keyed else topics

    def _read_each(
        self, messages: pa.RecordBatch, texts: Texts, expected: Sequence[bool] | None, places: Sequence[int]
    ) -> Events:
        messages = messages if len(places) == len(messages) else messages.take(pa.array(places, pa.int64()))
        tombstones = messages.column("value").is_null().to_pylist()
        of = (
            read_messages(messages)
            if self._of.keyed
            else [_TOMBSTONE if is_gone else _OF_FILE for is_gone in tombstones]
        )
        events: list[_Event] = []
        odd: dict[int, str] = {}
        for place, message, is_gone in zip(places, of, tombstones, strict=True):
            reason = None if expected is None or expected[place] or is_gone else OTHER_SCHEMA
            value = texts.parsed(place)
            try:
                if type(value) is UnreadableError:
                    raise value
                for envelope in self._rows(message, value):
                    event, why = self._event(place, message, envelope)
                    if event is not None:
                        if reason or why:
                            odd[len(events)] = reason or why or ""
                        events.append(event)
            except UnreadableError as error:
                odd[len(events)] = _reason(error.rule)
                events.append(_unread(place))
        return Events.of(events, odd=odd)

    def _event(self, place: int, message: Message, envelope: Envelope) -> tuple[_Event | None, str | None]:
        """Return an event of the table, and why it is set aside regardless of its values."""
        op, before, after = envelope.op, envelope.before, envelope.after or NO_ROW
        table, odd = envelope.source_table or None, self._judge(envelope)
        if op is None:
            is_row = envelope.problem is not None and envelope.problem[0] == "unknown-type"
            if odd is None or (is_row and not self._is_own(table, message.topic)):
                return None, None
            return _unread(place), odd
        if op == "x":
            return (place, op, NO_ROW, NO_ROW, NO_ROW, envelope.keys, envelope.place, None), odd
        if not self._is_own(table, message.topic):
            return None, None
        if self._key is not None and odd is None:
            odd = self._another_key(envelope, self._key)
        if op == "d":
            return (place, op, NO_ROW, before or NO_ROW, NO_ROW, envelope.keys, envelope.place, table), odd
        if op == "t":
            op, odd = ODD, odd or _NO_ROW_EVENT
        elif odd is None and not after.keys() <= self._known:
            odd = self._new_column(envelope)
        was = (before or NO_ROW) if op == "u" else NO_ROW
        return (place, op, after, after, was, envelope.keys, envelope.place, table), odd

    def _judge(self, envelope: Envelope) -> str | None:
        if envelope.problem is not None:
            return _reason(envelope.problem[0])
        return None if envelope.schema is None else self._schemas.judge(envelope)

    def _is_own(self, table: str | None, topic: str | None) -> bool:
        known = self._own.get((table, topic))
        if known is None:
            known = self._own[table, topic] = table is None or self._of.is_own(table, topic)
        return known

    def _another_key(self, envelope: Envelope, known: frozenset[str]) -> str | None:
        """Return a reason if a message names other key columns than the table has, else None."""
        names: Iterable[str] | None = envelope.key_names
        if names is None and self._has_row_keys and envelope.keys is not None:
            names = envelope.keys.record_key()
        return None if agrees(names, known) else "another key"

    def _new_column(self, envelope: Envelope) -> str | None:
        """Return a reason if a row has a value for an unknown column, else None."""
        if refuse_bad_names(envelope).problem is not None:
            return _NO_ROW_EVENT
        image = envelope.after or NO_ROW
        new = (name for name, value in image.items() if value is not None and name not in self._known)
        name = next(new, None)
        return None if name is None else f"a new column {name}"


class JudgedReader:
    """Read messages after a first pass over all of them; none is set aside."""

    def __init__(self, judged: Judged) -> None:
        self._of = judged

    def read(self, messages: pa.RecordBatch) -> Iterator[Events]:
        """Yield the events of messages, and the unreadable messages of the table."""
        orders = messages.column(PLACED).to_pylist() if PLACED in messages.schema.names else None
        events: list[_Event] = []
        rejected: dict[int, tuple[str, str]] = {}
        schemas: list[str | None] = []
        placed: dict[int, str] = {}
        for read in self._of.read(messages):
            order = None if orders is None else orders[read.place]
            if order is None and not self._is_own(read.envelope):
                continue
            if order is not None:
                placed[len(events)] = order
            if read.envelope.problem is not None:
                rejected[len(events)] = read.envelope.problem
            schemas.append(read.schema)
            events.append(_judged_event(read.place, read.envelope, is_placed=order is not None))
        yield Events.of(events, rejected=rejected, placed=placed, schemas=schemas if self._of.encoded else None)

    def _is_own(self, envelope: Envelope) -> bool:
        is_row = envelope.op in _ROWS or envelope.problem is not None
        return is_row and envelope.source_table in self._of.source_tables


def _judged_event(place: int, one: Envelope, *, is_placed: bool) -> _Event:
    op = "d" if is_placed else one.op or ODD
    image = one.after or NO_ROW
    key_image = one.before or NO_ROW if op == "d" else image
    row = NO_ROW if op in ("d", ODD) else image
    was = (one.before or NO_ROW) if op == "u" else NO_ROW
    return place, op, row, key_image, was, one.keys, one.place, one.source_table


def _unread(place: int) -> _Event:
    """Return the event of a message that is not a row event."""
    return place, ODD, NO_ROW, NO_ROW, NO_ROW, None, _NO_PLACE, None


def _reason(rule: str) -> str:
    return _NO_JSON if rule == "not-json" else _NO_ROW_EVENT
