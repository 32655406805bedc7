"""Decode messages into tables of the engine's layout, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakecdc.ingest.envelopes import find_rows
from lakecdc.ingest.envelopes.debezium import OLD_KEY
from lakecdc.ingest.envelopes.json_values import Object, UnreadableError, parse_each
from lakecdc.ingest.envelopes.message import Envelope, Keys, Message, Place, refuse_bad_names
from lakecdc.ingest.formats.native.layout import COUNTS, events_schema
from lakecdc.ingest.formats.native.schemas import OTHER_SCHEMA, SchemaCheck
from lakecdc.ingest.formats.values import find_placeholders, placeholder_shapes
from lakecdc.ingest.order import LAST_TIME
from lakecdc.model.arrow_columns import ArrowColumn
from lakecdc.model.tokens import MisfitError, as_token

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.ingest.formats.native.decoding import Decoding

#: columns of a decoded table besides the layout's: why an event is set aside, its message if so, and its source table
CHECKS = ("odd", "message", "source_table")
_NO_JSON, _NO_ROW_EVENT = "text that is no JSON", "a message that is no plain row event"
# op of what is set aside and is not a row event
_ODD = "odd"
_NO_ROW: Object = {}
_SIGN, _LAST_MICROS = 1 << 63, LAST_TIME * 1000 + 999
_OF_FILE, _GONE, _NO_PLACE = Message(b""), Message(None), Place()


# message's place, op, row (empty for deletes), image that has the key, row before an update, keys, place in the log,
# source table
_Event = tuple[int, str, Object, Object, Object | None, Keys | None, Place, str | None]


class _Events:
    """The events of some messages, one sequence a part.

    :param odd: why an event is set aside, by its place here.
    """

    def __init__(self, events: Sequence[_Event], odd: dict[int, str]) -> None:
        parts: Sequence[Sequence[Any]] = list(zip(*events, strict=True)) or [()] * 8
        self.messages, self.ops, self.images, self.key_images = parts[:4]
        self.befores, self.keys, self.places, self.source_tables = parts[4:]
        self.odd = odd

    def set_aside(self, places: Sequence[int], reason: str) -> None:
        """Set row events aside, unless there is a reason already."""
        for place in places:
            if self.ops[place] != _ODD:
                self.odd.setdefault(place, reason)


class Decoder:
    """What turns the messages of one table into its events."""

    def __init__(self, decoding: Decoding) -> None:
        self._of = decoding
        self._rows = find_rows(decoding.format, decoding.order_by, only_added=decoding.only_added)
        self._columns = {f.name: ArrowColumn(f.column_type) for f in decoding.fields}
        self._known = frozenset((*self._columns, *decoding.ignored))
        self._large = frozenset(f.name for f in decoding.large_fields)
        self._placeholders = frozenset(placeholder_shapes(decoding.unavailable_value))
        self.schemas = SchemaCheck(decoding)
        self._own: dict[tuple[str | None, str | None], bool] = {}

    def decode(self, messages: pa.RecordBatch, values: pa.Array, expected: Sequence[bool] | None) -> pa.RecordBatch:
        """Return the events of messages in the engine's layout, with :data:`CHECKS`.

        :param values: of the messages, without their schemas.
        :param expected: which of them had the schema of the table; None if none has one.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        events = self._events(messages, values, expected)
        ops = pa.array(events.ops, pa.string())
        columns = {
            "op": ops,
            **self._keys(events, messages),
            **self._values(events),
            **self._order(events, messages),
        }
        counts = {name: pc.equal(ops, name[-1]).cast(pa.int32()) for name in COUNTS}
        columns |= counts | self._checks(events, messages)
        layout = self.layout(messages)
        return pa.RecordBatch.from_arrays([columns[name] for name in layout.names], schema=layout)

    def layout(self, messages: pa.RecordBatch) -> pa.Schema:
        """Return the columns that events are decoded into."""
        import pyarrow as pa

        events = events_schema({name: column.arrow for name, column in self._columns.items()}, self._of.key)
        message = pa.struct([column.with_nullable(True) for column in messages.schema])
        checks = {"odd": pa.string(), "message": message, "source_table": pa.string()}
        return pa.schema([*events, *checks.items()])

    def complete(self, events: pa.Table, messages: pa.RecordBatch) -> pa.Table:
        """Return events that leave nothing out, moved no key and fit, with the columns of all others."""
        import pyarrow as pa

        layout, count = self.layout(messages), events.num_rows
        columns = []
        for one in layout:
            if one.name == "moved":
                columns.append(pa.repeat(False, count))
            elif one.name in events.column_names:
                columns.append(events[one.name].cast(one.type))
            else:
                columns.append(pa.nulls(count, one.type))
        return pa.table(columns, schema=layout)

    def _events(self, messages: pa.RecordBatch, values: pa.Array, expected: Sequence[bool] | None) -> _Events:
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
        return _Events(events, odd)

    def _event(self, place: int, message: Message, envelope: Envelope) -> tuple[_Event | None, str | None]:
        """Return an event of the table, and why it is set aside whatever its values are."""
        op, before, after = envelope.op, envelope.before, envelope.after or _NO_ROW
        table, odd = envelope.source_table or None, self._judge(envelope)
        if op is None:
            is_row = envelope.problem is not None and envelope.problem[0] == "unknown-type"
            if odd is None or (is_row and not self._is_own(table, message.topic)):
                return None, None
            return _unread(place), odd
        if op == "x":
            return (place, op, _NO_ROW, _NO_ROW, None, envelope.keys, envelope.place, None), odd
        if not self._is_own(table, message.topic):
            return None, None
        if op == "d":
            return (place, op, _NO_ROW, before or _NO_ROW, None, envelope.keys, envelope.place, table), odd
        if op == "t":
            op, odd = _ODD, odd or _NO_ROW_EVENT
        elif odd is None and not after.keys() <= self._known:
            odd = self._new_column(envelope)
        was = before if op == "u" else None
        return (place, op, after, after, was, envelope.keys, envelope.place, table), odd

    def _judge(self, envelope: Envelope) -> str | None:
        if envelope.problem is not None:
            return _reason(envelope.problem[0])
        return None if envelope.schema is None else self.schemas.judge(envelope)

    def _is_own(self, table: str | None, topic: str | None) -> bool:
        known = self._own.get((table, topic))
        if known is None:
            known = self._own[table, topic] = table is None or self._of.is_own(table, topic)
        return known

    def _new_column(self, envelope: Envelope) -> str | None:
        """Return that a row has a value for a column that the table lacks; None if all of these are null."""
        if refuse_bad_names(envelope).problem is not None:
            return _NO_ROW_EVENT
        image = envelope.after or _NO_ROW
        new = (name for name, value in image.items() if value is not None and name not in self._known)
        name = next(new, None)
        return None if name is None else f"a new column {name}"

    def _keys(self, events: _Events, messages: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the key of each event, and the one that its row had before; set aside those that have none."""
        import pyarrow as pa

        moved = [
            place
            for place, keys in enumerate(events.keys)
            if keys is not None and keys.old is not None and events.ops[place] in ("r", "c", "u")
        ]
        old_keys = {place: (events.keys[place] or Keys(None)).old_key() or _NO_ROW for place in moved}
        now, old = {}, {}
        for i, name in enumerate(self._of.key):
            column, tokens = self._columns[name], self._key_tokens(name, events, messages)
            now[f"k{i}"], misfits = column.convert(tokens)
            lacking = [place for place, token in enumerate(tokens) if token is None]
            events.set_aside([*lacking, *misfits], f"the key column {name}")
            was: list[Any] = [None] * len(tokens)
            for place, image in old_keys.items():
                was[place] = events.source_tables[place] if name == self._of.source_column else image.get(name)
                if was[place] is None:
                    events.set_aside([place], "an old key")
            old[f"o{i}"], misfits = column.convert(was)
            events.set_aside(misfits, "an old key")
            events.set_aside(self._changed(name, events, tokens), "an update that changes the key")
        is_moved = [False] * len(events.ops)
        for place in moved:
            is_moved[place] = True
        return {**now, **old, "moved": pa.array(is_moved, pa.bool_())}

    def _key_tokens(self, name: str, events: _Events, messages: pa.RecordBatch) -> list[Any]:
        if name == self._of.source_column:
            # so that a tombstone finds its delete, in a topic called like its table
            return [
                _last_names(messages, events.messages[place]) if op == "x" else events.source_tables[place]
                for place, op in enumerate(events.ops)
            ]
        tokens = [image.get(name) for image in events.key_images]
        if None in tokens:
            for place, token in enumerate(tokens):
                keys = events.keys[place]
                if token is None and keys is not None and events.ops[place] != _ODD:
                    tokens[place] = (keys.record_key() or _NO_ROW).get(name)
        return tokens

    def _changed(self, name: str, events: _Events, tokens: Sequence[Any]) -> list[int]:
        """Return the updates whose row had another value in a key column before."""
        if name == self._of.source_column:
            return []
        parse = self._columns[name].type.parser()
        changed = []
        for place, before in enumerate(events.befores):
            was = before.get(name) if before else None
            if was is None or was == tokens[place]:
                continue
            try:
                same = parse(as_token(was)) == parse(as_token(tokens[place]))
            except MisfitError:
                same = False
            if not same:
                changed.append(place)
        return changed

    def _values(self, events: _Events) -> dict[str, pa.Array]:
        """Return the columns of the row, and which values stand for "unchanged"; set aside what does not fit."""
        import pyarrow as pa

        columns: dict[str, pa.Array] = {}
        left_out: dict[int, list[str]] = {}
        for i, field_ in enumerate(self._of.fields):
            name = field_.name
            if name == self._of.source_column:
                columns[f"c{i}"] = pa.array(events.source_tables, pa.string())
                continue
            tokens = [image.get(name) for image in events.images]
            placeholders = find_placeholders(tokens, self._placeholders) if name in self._large else []
            for place in placeholders:
                left_out.setdefault(place, []).append(name)
            columns[f"c{i}"], misfits = self._columns[name].convert(tokens)
            # a decimal's placeholder is no decimal
            events.set_aside(sorted({*misfits}.difference(placeholders)), f"a value of the column {name}")
        opened: pa.Array = pa.nulls(len(events.ops), pa.list_(pa.string()))
        if left_out:
            opened = pa.array([left_out.get(place) for place in range(len(events.ops))], pa.list_(pa.string()))
        return {**columns, "open": opened}

    def _order(self, events: _Events, messages: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the parts of the order key; set aside events that have no place in it."""
        import numpy as np
        import pyarrow as pa

        gone = np.array([op == "x" for op in events.ops], np.bool_)
        positions, ordinals, times = self._coordinates(events)
        places = pa.array(events.messages, pa.int64())
        return {
            "pos": pa.array(np.where(gone, -1, np.array(positions, np.int64))),
            "ord": pa.array(np.where(gone, 0, np.array(ordinals, np.int64))),
            "rank": pa.array([place.rank for place in events.places], pa.int8()),
            "time_ms": pa.array(pa.array(times, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1000),
            "arrival": messages.column("arrival").take(places).cast(pa.int64()),
            "time_us": pa.array(times, pa.int64(), mask=gone),
            "partition": partitions(messages).take(places) if self._of.keyed else pa.repeat("0", len(places)),
        }

    def _coordinates(self, events: _Events) -> tuple[list[int], list[int], list[int | None]]:
        """Return positions, ordinals and source times; set aside events for which one of them is out of range."""
        # of unsigned numbers these are the order and the digits
        turn = 2 * _SIGN if self._of.format == "json" and self._of.order_by is not None else 0
        low = -_SIGN if turn else 0
        positions = [place.position - turn for place in events.places]
        ordinals = [place.ordinal for place in events.places]
        times = [place.time_us for place in events.places]
        unplaced = [
            place
            for place, position in enumerate(positions)
            if not (
                low <= position < low + _SIGN
                and 0 <= ordinals[place] < _SIGN
                and 0 <= (times[place] or 0) <= _LAST_MICROS
            )
        ]
        for place in unplaced:
            positions[place] = ordinals[place] = 0
            times[place] = None
        events.set_aside([place for place in unplaced if events.ops[place] != "x"], "a position out of range")
        return positions, ordinals, times

    def _checks(self, events: _Events, messages: pa.RecordBatch) -> dict[str, pa.Array]:
        import pyarrow as pa

        count = len(events.ops)
        # of what is not set aside all are null
        fields = [column.with_nullable(True) for column in messages.schema]
        together = pa.StructArray.from_arrays(messages.columns, fields=fields)
        if events.odd:
            odd = pa.array([events.odd.get(place) for place in range(count)], pa.string())
            chosen = [number if place in events.odd else None for place, number in enumerate(events.messages)]
            message = together.take(pa.array(chosen, pa.int64()))
        else:
            odd, message = pa.nulls(count, pa.string()), pa.nulls(count, together.type)
        return {"odd": odd, "message": message, "source_table": pa.array(events.source_tables, pa.string())}


def _unread(place: int) -> _Event:
    """Return what stands for a message that is not read as a row event."""
    return place, _ODD, _NO_ROW, _NO_ROW, None, None, _NO_PLACE, None


def _reason(rule: str) -> str:
    return _NO_JSON if rule == "not-json" else _NO_ROW_EVENT


def has_old_key(messages: pa.RecordBatch, decoding: Decoding) -> pa.Array:
    """Check which messages have a header that tells the key that the row had before."""
    import pyarrow as pa

    if not decoding.keyed or messages.column("headers").null_count == len(messages):
        return pa.repeat(False, len(messages))
    old = _old_keys(messages, texts=False)
    return pa.array([was is not None for was in old], pa.bool_())


def read_messages(messages: pa.RecordBatch, *, texts: bool) -> list[Message]:
    """Return messages with their keys, whose values are only there or not.

    :param texts: their keys stand beside them as JSON.
    """
    import pyarrow as pa

    gone = messages.column("value").is_null().to_pylist()
    topics = messages.column("topic").to_pylist()
    stamps = messages.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    keys, old = _texts(messages.column("key_text" if texts else "key")), _old_keys(messages, texts=texts)
    return [
        Message(None if is_gone else b"", key, topic, stamp, None if was is None else {OLD_KEY: was})
        for is_gone, key, topic, stamp, was in zip(gone, keys, topics, stamps, old, strict=True)
    ]


def _old_keys(messages: pa.RecordBatch, *, texts: bool) -> list[bytes | None]:
    """Return the keys that rows had before, which a header tells."""
    headers = messages.column("headers")
    if headers.null_count == len(headers):
        return [None] * len(headers)
    old = [next((each["value"] for each in row or () if each["key"] == OLD_KEY), None) for row in headers.to_pylist()]
    if not texts:
        return old
    linked = _texts(messages.column("moved_text"))
    return [None if was is None else text or b"null" for was, text in zip(old, linked, strict=True)]


def _texts(column: pa.Array) -> list[bytes | None]:
    import pyarrow as pa

    values: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return values


def _last_names(messages: pa.RecordBatch, place: int) -> str | None:
    """Return the last two names of a message's topic, which is called like its table."""
    topic = messages.column("topic")[place].as_py() if "topic" in messages.schema.names else None
    return None if topic is None else ".".join(topic.rsplit(".", 2)[-2:])


def partitions(messages: pa.RecordBatch) -> pa.Array:
    """Return ``topic/partition`` of each message, the partition alone without a topic."""
    import pyarrow as pa
    import pyarrow.compute as pc

    partition = messages.column("partition").cast(pa.string())
    topic = messages.column("topic")
    return pc.if_else(topic.is_valid(), pc.binary_join_element_wise(topic, partition, "/"), partition)
