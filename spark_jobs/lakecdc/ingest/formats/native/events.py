"""Read the events of one table from messages, before any column is typed.

The first attempt at a batch knows only the table. It sets aside messages that a task cannot judge, such as one with a
new column (:class:`QuickReader`). After a survey of all messages, each one is an event of the table, a rejected
message, or a message of another table (:class:`JudgedReader`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lakecdc.ingest.envelopes import find_rows
from lakecdc.ingest.envelopes.json_values import Object, UnreadableError, parse_each
from lakecdc.ingest.envelopes.message import Envelope, Keys, Message, Place, refuse_bad_names
from lakecdc.ingest.formats import find_format
from lakecdc.ingest.formats.message_columns import PLACED, agrees, read_messages
from lakecdc.ingest.formats.native.schemas import OTHER_SCHEMA, SchemaCheck

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.ingest.formats.native.decoding import Decoding, Judged

#: op of what is set aside or rejected and is not a row event
ODD = "odd"
NO_ROW: Object = {}
_NO_JSON, _NO_ROW_EVENT = "text that is no JSON", "a message that is no plain row event"
_ROWS = ("r", "c", "u", "d")
_OF_FILE, _GONE, _NO_PLACE = Message(b""), Message(None), Place()

# message's place, op, row (empty for deletes), image that has the key, row before an update, keys, place in the log,
# source table
_Event = tuple[int, str, Object, Object, Object | None, Keys | None, Place, str | None]


class Events:
    """The events of some messages, one sequence a part.

    :param odd: why an event is set aside, by its place here.
    :param rejected: rule and reason why it cannot be applied, by its place here.
    :param schemas: texts of the rows' schemas, where schemas write columns in different ways.
    :param placed: order keys of tombstones that are deletes, by their places here.
    """

    def __init__(
        self,
        events: Sequence[_Event],
        odd: dict[int, str],
        rejected: dict[int, tuple[str, str]],
        schemas: Sequence[str | None] | None = None,
        placed: dict[int, str] | None = None,
    ) -> None:
        parts: Sequence[Sequence[Any]] = list(zip(*events, strict=True)) or [()] * 8
        self.messages, self.ops, self.images, self.key_images = parts[:4]
        self.befores, self.keys, self.places, self.source_tables = parts[4:]
        self.odd, self.rejected, self.schemas, self.placed = odd, rejected, schemas, placed or {}

    def set_aside(self, places: Iterable[int], reason: str) -> None:
        """Set row events aside, unless there is a reason already."""
        for place in places:
            if self.ops[place] != ODD:
                self.odd.setdefault(place, reason)


class QuickReader:
    """Reads messages when only the table is known."""

    def __init__(self, decoding: Decoding) -> None:
        self._of = decoding
        self._rows = find_rows(decoding.format, decoding.order_by, only_added=decoding.only_added)
        self._known = frozenset((*(f.name for f in decoding.fields), *decoding.ignored))
        self._schemas = SchemaCheck(decoding)
        self._key = frozenset(decoding.key) if decoding.tells_key else None
        self._has_row_keys = find_format(decoding.format).row_keys
        self._own: dict[tuple[str | None, str | None], bool] = {}

    def payloads(self, messages: pa.RecordBatch) -> tuple[pa.Array, list[bool] | None]:
        """Return the values of messages without their schemas, and which had the table's; None if none has one."""
        return self._schemas.payloads(messages)

    def read(self, messages: pa.RecordBatch, values: pa.Array, expected: Sequence[bool] | None) -> Events:
        """Return the events of messages.

        :param values: see :meth:`payloads`, as for ``expected``.
        """
        of = read_messages(messages, texts=self._of.texts) if self._of.keyed else None
        gone = messages.column("value").is_null().to_pylist()
        events: list[_Event] = []
        odd: dict[int, str] = {}
        for place, value in enumerate(parse_each(values)):
            message = of[place] if of else _GONE if gone[place] else _OF_FILE
            reason = None if expected is None or expected[place] or gone[place] else OTHER_SCHEMA
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
        return Events(events, odd, {})

    def _event(self, place: int, message: Message, envelope: Envelope) -> tuple[_Event | None, str | None]:
        """Return an event of the table, and why it is set aside whatever its values are."""
        op, before, after = envelope.op, envelope.before, envelope.after or NO_ROW
        table, odd = envelope.source_table or None, self._judge(envelope)
        if op is None:
            is_row = envelope.problem is not None and envelope.problem[0] == "unknown-type"
            if odd is None or (is_row and not self._is_own(table, message.topic)):
                return None, None
            return _unread(place), odd
        if op == "x":
            return (place, op, NO_ROW, NO_ROW, None, envelope.keys, envelope.place, None), odd
        if not self._is_own(table, message.topic):
            return None, None
        if self._key is not None and odd is None:
            odd = self._another_key(envelope, self._key)
        if op == "d":
            return (place, op, NO_ROW, before or NO_ROW, None, envelope.keys, envelope.place, table), odd
        if op == "t":
            op, odd = ODD, odd or _NO_ROW_EVENT
        elif odd is None and not after.keys() <= self._known:
            odd = self._new_column(envelope)
        was = before if op == "u" else None
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
        """Return a reason if a row has a value for a column that the table lacks, else None."""
        if refuse_bad_names(envelope).problem is not None:
            return _NO_ROW_EVENT
        image = envelope.after or NO_ROW
        new = (name for name, value in image.items() if value is not None and name not in self._known)
        name = next(new, None)
        return None if name is None else f"a new column {name}"


class JudgedReader:
    """Reads messages after a survey of all of them; none is set aside."""

    def __init__(self, judged: Judged) -> None:
        self._of = judged

    def payloads(self, messages: pa.RecordBatch) -> tuple[pa.Array, list[bool] | None]:
        """Return the values of messages, which are taken out of their schemas as they are read."""
        return messages.column("value"), None

    def read(self, messages: pa.RecordBatch, values: pa.Array, expected: Sequence[bool] | None) -> Events:
        """Return the events of messages, and the messages of the table that cannot be read."""
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
        return Events(events, {}, rejected, schemas if self._of.encoded else None, placed)

    def _is_own(self, envelope: Envelope) -> bool:
        is_row = envelope.op in _ROWS or envelope.problem is not None
        return is_row and envelope.source_table in self._of.source_tables


def _judged_event(place: int, one: Envelope, *, is_placed: bool) -> _Event:
    op = "d" if is_placed else one.op or ODD
    image = one.after or NO_ROW
    key_image = one.before or NO_ROW if op == "d" else image
    row = NO_ROW if op in ("d", ODD) else image
    return place, op, row, key_image, one.before if op == "u" else None, one.keys, one.place, one.source_table


def _unread(place: int) -> _Event:
    """Return what stands for a message that is not read as a row event."""
    return place, ODD, NO_ROW, NO_ROW, None, None, _NO_PLACE, None


def _reason(rule: str) -> str:
    return _NO_JSON if rule == "not-json" else _NO_ROW_EVENT
