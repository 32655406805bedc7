"""Decode messages to tables of the engine's layout in plain Python: type columns, find keys, reject misfits."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.engine.decoding import Decoding
from lakecdc.ingest.engine.events import NO_ROW, ODD, Events, JudgedReader, QuickReader
from lakecdc.ingest.engine.layout import (
    CHECKS,
    COUNTS,
    ORDER_PARTS,
    decoded_schema,
    events_schema,
    order_parts,
    rejected_column,
)
from lakecdc.ingest.envelopes.json_values import Object
from lakecdc.ingest.envelopes.message import FIRST_MOMENT, LAST_MOMENT, Keys
from lakecdc.ingest.formats.message_columns import cut_into_parts, last_names, partitions
from lakecdc.ingest.formats.values import Field, find_placeholders, placeholder_shapes
from lakecdc.model.arrow_columns import ArrowColumn
from lakecdc.model.tokens import MisfitError, as_token

_IS_ROW = ("r", "c", "u")
# columns that the delete under a row's old key shares with the update of its key
_OF_DELETES = (*ORDER_PARTS, "time_us", "partition", "source_table")


class Decoder:
    """Decode the messages of one table to its events.

    :ivar moves: number of key updates so far; each became two events.
    """

    def __init__(self, decoding: Decoding) -> None:
        self._of, self.moves = decoding, 0
        self._columns = {f.name: ArrowColumn(f.column_type) for f in decoding.fields}
        judged = decoding.judged
        self._encoded = {
            name: {text: ArrowColumn(one.column_type) for text, one in by_schema.items()}
            for name, by_schema in (judged.encoded if judged else {}).items()
        }
        self._large = frozenset(f.name for f in decoding.large_fields)
        self._placeholders = frozenset(placeholder_shapes(decoding.reading.unavailable_value))
        self._reader = JudgedReader(judged) if judged else QuickReader(decoding)
        self._other_cases = [(k, re.compile(rf'"((?i:{re.escape(k)}))"\s*:')) for k in decoding.key]

    def decode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the events of messages in the engine's layout, with :data:`CHECKS`.

        A key update becomes two events: the delete of the row under its old key, and the update.
        """
        for part in (part for batch in batches for part in cut_into_parts(batch)):
            # these objects have no cycles, and searching a million of them for cycles takes as long as decoding
            gc.disable()
            try:
                tables = [self._typed(events, part) for events in self._reader.read(part) if events.ops]
            finally:
                gc.enable()
            for events in tables:
                yield from events.combine_chunks().to_batches()

    def _typed(self, events: Events, messages: pa.RecordBatch) -> pa.Table:
        ops = pa.array(events.ops, pa.string())
        keys, tokens = self._keys(events, messages)
        columns = {"op": ops, **keys, **self._values(events), **self._order(events, messages)}
        columns |= {name: pc.equal(ops, name[-1]).cast(pa.int32()) for name in COUNTS}
        self._reject_keyless(events, messages, tokens)
        moved = self._moved(events, tokens)
        columns |= self._old_keys(events, moved)
        kinds = {name: column.arrow for name, column in self._columns.items()}
        message = pa.struct([column.with_nullable(True) for column in messages.schema])
        layout = decoded_schema(kinds, self._of.key, message)
        columns |= self._checks(events, messages, columns, layout)
        typed = pa.table([columns[name] for name in layout.names], schema=layout)
        # an update whose old key does not fit was set aside
        moves = [place for place in moved if place not in events.odd]
        self.moves += len(moves)
        return pa.concat_tables([self._deletes(typed.take(pa.array(moves))), typed]) if moves else typed

    def _convert(self, name: str, tokens: Sequence[Any], events: Events) -> tuple[pa.Array, list[int]]:
        """Return a column of values, and the places of those that do not fit."""
        by_schema = self._encoded.get(name)
        if not by_schema or events.schemas is None:
            return self._columns[name].convert(tokens)
        parts: dict[str | None, list[int]] = {}
        for place, text in enumerate(events.schemas):
            parts.setdefault(text if text in by_schema else None, []).append(place)
        columns, misfits, order = [], list[int](), list[int]()
        for text, places in parts.items():
            column = self._columns[name] if text is None else by_schema[text]
            converted, wrong = column.convert([tokens[place] for place in places])
            columns.append(converted)
            misfits += [places[number] for number in wrong]
            order += places
        back = sorted(range(len(order)), key=order.__getitem__)
        together = pa.chunked_array(columns, self._columns[name].arrow).combine_chunks()
        return together.take(pa.array(back, pa.int64())), sorted(misfits)

    def _keys(self, events: Events, messages: pa.RecordBatch) -> tuple[dict[str, pa.Array], dict[str, list[Any]]]:
        """Return the key of each event, and its values; None for values that do not fit."""
        columns: dict[str, pa.Array] = {}
        tokens: dict[str, list[Any]] = {}
        for i, name in enumerate(self._of.key):
            values = self._key_tokens(name, events, messages)
            column, misfits = self._convert(name, values, events)
            deletes = [place for place in misfits if events.ops[place] not in _IS_ROW]
            if deletes:
                for place in deletes:
                    values[place] = self._of_record(events.keys[place], name)
                column, misfits = self._convert(name, values, events)
            for place in misfits:
                values[place] = None
            columns[f"k{i}"], tokens[name] = column, values
        return columns, tokens

    def _key_tokens(self, name: str, events: Events, messages: pa.RecordBatch) -> list[Any]:
        if name == self._of.target.source_column:
            # pairs a tombstone with its delete, in a topic named like the table
            return [
                last_names(messages, events.messages[place]) if op == "x" else events.source_tables[place]
                for place, op in enumerate(events.ops)
            ]
        tokens = events.key_images(name)
        if None in tokens:
            for place, token in enumerate(tokens):
                if token is None:
                    tokens[place] = self._of_record(events.keys[place], name)
        return tokens

    @staticmethod
    def _of_record(keys: Keys | None, name: str) -> Any:
        return None if keys is None else (keys.record_key() or NO_ROW).get(name)

    def _reject_keyless(self, events: Events, messages: pa.RecordBatch, tokens: Mapping[str, Sequence[Any]]) -> None:
        """Reject events without a value in a key column, and set aside tombstones."""
        lacking: dict[int, list[str]] = {}
        for name, values in tokens.items():
            if None in values:
                for place, value in enumerate(values):
                    if value is None:
                        lacking.setdefault(place, []).append(name)
        for place, names in lacking.items():
            if not self._of.rejects or events.ops[place] == "x":
                events.set_aside([place], f"the key column {names[0]}")
            elif events.ops[place] != ODD:
                hint = self._of_another_case(messages, events.messages[place])
                reason = f"no value for the key columns {', '.join(names)}{hint}"
                events.rejected.setdefault(place, ("no-key", reason))

    def _of_another_case(self, messages: pa.RecordBatch, place: int) -> str:
        """Return a note on names in a message that differ from key columns only in case."""
        names = [name for name in ("key", "value") if name in messages.schema.names]
        parts = [messages.column(name)[place].as_py() for name in names]
        text = " ".join(p if isinstance(p, str) else p.decode(errors="replace") for p in parts if p is not None)
        matches = [(name, pattern.search(text)) for name, pattern in self._other_cases]
        others = [match[1] for name, match in matches if match and match[1] != name]
        return f"; it has {', '.join(others)}, and names are case-sensitive" if others else ""

    def _moved(self, events: Events, tokens: Mapping[str, Sequence[Any]]) -> dict[int, list[Any]]:
        """Return the key updates, each with its old key."""
        befores = {name: events.befores(name) for name in self._of.key if name != self._of.target.source_column}
        differ = {
            place
            for name, olds in befores.items()
            for place, (old, new) in enumerate(zip(olds, tokens[name], strict=True))
            if old is not None and old != new
        }
        old_keys = {}
        for place in sorted(differ):
            now = [tokens[name][place] for name in self._of.key]
            olds = [befores[name][place] if name in befores else None for name in self._of.key]
            was = [self._before(*each) for each in zip(self._of.key, olds, now, strict=True)]
            applies = place not in events.odd and place not in events.rejected
            if applies and any(old is not new for old, new in zip(was, now, strict=True)):
                old_keys[place] = was
        return old_keys

    def _before(self, name: str, was: Any, now: Any) -> Any:
        """Return the former value of a key column: the new value unless the row before differs."""
        if was is None:
            return now
        parse = self._columns[name].type.parser()
        try:
            return now if parse(as_token(was)) == parse(as_token(now)) else was
        except MisfitError:
            # a value that does not fit was never a row's key
            return was if self._of.judged is None else now

    def _old_keys(self, events: Events, moved: Mapping[int, list[Any]]) -> dict[str, pa.Array]:
        """Return the old key of each row, if its event has it."""
        count = len(events.ops)
        linked = self._linked(events)
        if not moved and not linked:
            nothing = {f"o{i}": pa.nulls(count, self._columns[name].arrow) for i, name in enumerate(self._of.key)}
            return {**nothing, "moved": pa.repeat(False, count)}
        is_moved = [place in moved or place in linked for place in range(count)]
        columns: dict[str, pa.Array] = {}
        for i, name in enumerate(self._of.key):
            was: list[Any] = [None] * count
            for place, values in moved.items():
                was[place] = values[i]
            for place, image in linked.items():
                was[place] = events.source_tables[place] if name == self._of.target.source_column else image.get(name)
                if was[place] is None and self._of.judged is None:
                    events.set_aside([place], "an old key")
            columns[f"o{i}"], misfits = self._convert(name, was, events)
            if self._of.judged is None:
                events.set_aside(misfits, "an old key")
        return {**columns, "moved": pa.array(is_moved, pa.bool_())}

    def _linked(self, events: Events) -> dict[int, Object]:
        """Return the old keys in message headers; empty for a table without a key."""
        old_keys: dict[int, Object] = {}
        for place, keys in enumerate(events.keys if self._of.key and self._of.keyed else ()):
            if keys is not None and keys.old is not None and events.ops[place] in _IS_ROW:
                image = keys.old_key()
                if image is not None or self._of.judged is None:
                    old_keys[place] = image or NO_ROW
        return old_keys

    def _deletes(self, moved: pa.Table) -> pa.Table:
        count = moved.num_rows
        columns = []
        for one in moved.schema:
            if one.name[0] == "k" and one.name[1:].isdigit():
                columns.append(moved[f"o{one.name[1:]}"])
            elif one.name in _OF_DELETES:
                columns.append(moved[one.name])
            elif one.name in COUNTS:
                columns.append(pa.repeat(pa.scalar(int(one.name == "n_d"), one.type), count))
            elif one.name in ("op", "moved"):
                columns.append(pa.repeat(pa.scalar("d" if one.name == "op" else False, one.type), count))
            else:
                columns.append(pa.nulls(count, one.type))
        return pa.table(columns, schema=moved.schema)

    def _values(self, events: Events) -> dict[str, pa.Array]:
        """Return the columns of the row, and which values stand for "unchanged"; reject values that do not fit."""
        columns: dict[str, pa.Array] = {}
        left_out: dict[int, list[str]] = {}
        misfits: dict[int, list[Field]] = {}
        for i, field_ in enumerate(self._of.fields):
            name = field_.name
            if name == self._of.target.source_column:
                columns[f"c{i}"] = pa.array(events.source_tables, pa.string())
                continue
            tokens = events.images(name)
            placeholders = find_placeholders(tokens, self._placeholders) if name in self._large else []
            for place in placeholders:
                left_out.setdefault(place, []).append(name)
            columns[f"c{i}"], wrong = self._convert(name, tokens, events)
            # the placeholder of a decimal column is not a decimal
            for place in sorted({*wrong}.difference(placeholders)):
                misfits.setdefault(place, []).append(field_)
        for place, fields in misfits.items():
            if self._of.rejects:
                listed = ", ".join(f"{one.name} ({one.type})" for one in fields)
                events.rejected.setdefault(place, ("type", f"values do not fit their columns: {listed}"))
            else:
                events.set_aside([place], f"a value of the column {fields[0].name}")
        opened: pa.Array = pa.nulls(len(events.ops), pa.list_(pa.string()))
        if left_out:
            opened = pa.array([left_out.get(place) for place in range(len(events.ops))], pa.list_(pa.string()))
        return {**columns, "open": opened}

    def _order(self, events: Events, messages: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the parts of the order key; tombstones are below all events."""
        is_tombstone = np.array([op == "x" for op in events.ops], np.bool_)
        places = pa.array(events.messages, pa.int64())
        arrivals = np.array(messages.column("arrival").take(places).to_numpy(zero_copy_only=False))
        parts = events.places.order_parts(arrivals)
        parts |= {
            name: np.where(is_tombstone, number, parts[name]) for name, number in (("pos", 0), ("ord", 0), ("rank", -1))
        }
        for place, order in events.placed.items():
            for name, number in order_parts(order).items():
                parts[name][place] = number
        times = events.places.times
        is_known = pc.and_(pc.greater_equal(times, FIRST_MOMENT), pc.less_equal(times, LAST_MOMENT))
        schema = events_schema({}, ())
        return {
            **{name: pa.array(part, schema.field(name).type) for name, part in parts.items()},
            "time_us": pc.if_else(pc.and_(is_known, pa.array(~is_tombstone)), times, pa.scalar(None, pa.int64())),
            "partition": partitions(messages).take(places) if self._of.keyed else pa.repeat("0", len(places)),
        }

    def _checks(
        self, events: Events, messages: pa.RecordBatch, typed: Mapping[str, pa.Array], layout: pa.Schema
    ) -> dict[str, pa.Array]:
        count = len(events.ops)
        columns = {name: pa.nulls(count, layout.field(name).type) for name in CHECKS}
        columns["source_table"] = pa.array(events.source_tables, pa.string())
        if events.odd:
            columns["odd"] = pa.array([events.odd.get(place) for place in range(count)], pa.string())
        if events.odd or events.rejected:
            reported = events.odd.keys() | events.rejected.keys()
            chosen = [number if place in reported else None for place, number in enumerate(events.messages)]
            fields = [column.with_nullable(True) for column in messages.schema]
            together = pa.StructArray.from_arrays(messages.columns, fields=fields)
            # null for all applied events
            columns["message"] = together.take(pa.array(chosen, pa.int64()))
        if events.rejected:
            kind, epoch = layout.field("rejected").type, self._of.reading.epoch
            columns["rejected"] = rejected_column(events.rejected, {**typed, **columns}, kind, epoch)
        return columns
