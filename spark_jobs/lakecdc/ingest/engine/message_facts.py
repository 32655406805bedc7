"""Collect facts about the messages of a batch in one pass: source tables, columns, keys and events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.widening import common
from lakecdc.ingest.engine import facts
from lakecdc.ingest.engine.envelope_reader import EnvelopeReader
from lakecdc.ingest.engine.facts import Facts
from lakecdc.ingest.engine.layout import Places, order_texts
from lakecdc.ingest.envelopes.debezium import ROW_OPS
from lakecdc.ingest.formats import find_format
from lakecdc.ingest.formats.envelope import Read
from lakecdc.ingest.formats.message_columns import cut_into_parts, partitions
from lakecdc.ingest.formats.values import Field, json_type, merge_fields
from lakecdc.model.order import highest

# Spark SQL types of columns by name
_Types = dict[str, str]


class MessageFacts(msgspec.Struct):
    """Facts of the messages of one source table.

    :param source_table: ``schema.table`` or ``database.table``; None if the format lacks it.
    :param facts: facts of its events; ``rejected`` counts unreadable messages.
    :param topics: topics of the messages, tombstones included.
    :param truncate_order: order key of the last TRUNCATE.
    :param after: types of the members of row images without a schema.
    :param before: types of the members of images of deleted rows.
    :param keys: types of the members of the messages' keys.
    :param key_names: key columns as messages name them, without duplicates.
    :param schemas: columns by the text of each schema, if the format has schemas.
    :param schema_orders: highest order key with each schema.
    """

    source_table: str | None
    facts: Facts = Facts()
    topics: set[str] = set()
    truncate_order: str | None = None
    after: _Types = {}
    before: _Types = {}
    keys: _Types = {}
    key_names: set[tuple[str, ...]] = set()
    schemas: dict[str, tuple[Field, ...]] = {}
    schema_orders: dict[str, str] = {}

    @property
    def events(self) -> int:
        """Count the row events and TRUNCATEs."""
        return self.facts.count((*ROW_OPS, "t"))

    @property
    def tombstones(self) -> int:
        """Count the messages without a value."""
        return self.facts.count("x")

    @property
    def last_schema(self) -> tuple[Field, ...]:
        """Return all columns of the source in the last schema; empty without schemas."""
        with_columns = [text for text, columns in self.schemas.items() if columns]
        return self.schemas[max(with_columns, key=self.schema_orders.__getitem__)] if with_columns else ()

    @property
    def fields(self) -> tuple[Field, ...]:
        """Return the columns of the row images, from schemas if there are any, else from the values."""
        seen, last = _fields(self.after) or _fields(self.before), self.last_schema
        # columns of the last schema first, with types that fit all schemas
        return merge_fields((last, *(self.schemas[text] for text in sorted(self.schemas)), seen)) if last else seen

    @property
    def key(self) -> tuple[Field, ...]:
        """Return the members of the messages' keys."""
        return _fields(self.keys)

    def add(self, other: MessageFacts) -> None:
        """Add the facts of another part of the batch about the same source table."""
        self.facts = facts.merged([self.facts, other.facts])
        self.topics |= other.topics
        self.truncate_order = max(self.truncate_order or "", other.truncate_order or "") or None
        for types, more in ((self.after, other.after), (self.before, other.before), (self.keys, other.keys)):
            _note(types, more)
        self.key_names |= other.key_names
        self.schemas |= other.schemas
        self.schema_orders = highest([*self.schema_orders.items(), *other.schema_orders.items()])


_PARTS = msgspec.msgpack.Decoder(list[MessageFacts])


def collect_message_facts(messages: DataFrame, reader: EnvelopeReader, *, keys: bool = False) -> list[MessageFacts]:
    """Return the facts of a message frame by source table, in one pass.

    :param keys: whether to collect the members of the messages' keys.
    """
    rows = run_tasks(messages, _FactsTask(reader, keys), "facts binary").collect()
    return _merged(part for row in rows for part in _PARTS.decode(row["facts"]))


def message_facts(
    batches: Iterable[pa.RecordBatch], reader: EnvelopeReader, *, keys: bool = False
) -> list[MessageFacts]:
    """Return the facts of messages read in this process; see :func:`collect_message_facts`."""
    parts = (part for messages in batches for part in cut_into_parts(messages))
    return _merged(one for part in parts for one in _measured(part, reader, keys=keys))


def combined(parts: Iterable[MessageFacts]) -> MessageFacts:
    """Combine the facts of several source tables."""
    total = MessageFacts(None)
    for one in parts:
        total.add(one)
    return total


class _FactsTask:
    def __init__(self, reader: EnvelopeReader, keys: bool) -> None:
        self._reader, self._keys = reader, keys

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = message_facts(batches, self._reader, keys=self._keys)
        yield pa.RecordBatch.from_pydict({"facts": [msgspec.msgpack.encode(parts)]})


def _merged(parts: Iterable[MessageFacts]) -> list[MessageFacts]:
    by_table: dict[str | None, MessageFacts] = {}
    for part in parts:
        by_table.setdefault(part.source_table, MessageFacts(part.source_table)).add(part)
    return [by_table[name] for name in sorted(by_table, key=str)]


def _measured(messages: pa.RecordBatch, reader: EnvelopeReader, *, keys: bool) -> Iterator[MessageFacts]:
    """Yield the facts of messages by source table."""
    reads: dict[str | None, list[Read]] = {}
    for read in reader.read(messages):
        reads.setdefault(read.envelope.source_table, []).append(read)
    columns = messages.select(["topic", "arrival"]).append_column("partition", partitions(messages))
    for name, own in reads.items():
        of_table = MessageFacts(name)
        for read, order in zip(own, _note_facts(of_table, own, columns, reader.reading.epoch), strict=True):
            _note_columns(of_table, read, order, reader)
            if keys:
                _note_key(of_table, read, reader)
        yield of_table


def _note_facts(of_table: MessageFacts, reads: Sequence[Read], columns: pa.RecordBatch, epoch: int) -> list[str]:
    """Add the facts of events; return their order keys.

    :param columns: ``topic, arrival, partition`` of the messages.
    """
    at = pa.array([read.place for read in reads], pa.int64())
    ops = pa.array([read.envelope.op for read in reads], pa.string())
    places = Places.of([read.envelope.place for read in reads])
    own = columns.take(at)
    parts = places.order_parts(own["arrival"].to_numpy(zero_copy_only=False))
    batch = pa.record_batch({"partition": own["partition"], **parts})
    orders: list[str] = order_texts(epoch, *parts.values()).to_pylist()
    is_row = pc.is_in(ops, pa.array(ROW_OPS))
    of_rows = zip(batch["partition"].to_pylist(), orders, is_row.to_pylist(), strict=True)
    of_table.facts = Facts(
        events={one["values"]: one["counts"] for one in ops.value_counts().to_pylist() if one["values"]},
        high_orders=highest((partition, order) for partition, order, row in of_rows if row),
        newest=facts.latest(read.envelope.place.source_time for read in reads),
        rejected=sum(read.envelope.problem is not None for read in reads),
        stretches=facts.stretches(batch.filter(is_row), epoch),
    )
    of_table.topics = {name for name in pc.unique(own["topic"]).to_pylist() if name is not None}
    truncates = [order for order, op in zip(orders, ops.to_pylist(), strict=True) if op == "t"]
    of_table.truncate_order = max(truncates, default=None)
    return orders


def _note_columns(of_table: MessageFacts, read: Read, order: str, reader: EnvelopeReader) -> None:
    envelope, schema = read.envelope, read.schema
    if envelope.problem is not None:
        return
    if schema is not None:
        if schema not in of_table.schemas:
            of_table.schemas[schema] = reader.columns_of(schema)
        of_table.schema_orders[schema] = max(order, of_table.schema_orders.get(schema, ""))
    if schema is None or not of_table.schemas[schema]:
        if envelope.after is not None:
            _note_values(of_table.after, envelope.after)
        elif envelope.before is not None:
            _note_values(of_table.before, envelope.before)


def _note_key(of_table: MessageFacts, read: Read, reader: EnvelopeReader) -> None:
    envelope = read.envelope
    if envelope.keys is not None and find_format(reader.format).row_keys:
        _note_values(of_table.keys, envelope.keys.record_key() or {})
    if envelope.op in ROW_OPS and envelope.key_names:
        of_table.key_names.add(envelope.key_names)


def _note_values(types: _Types, image: Mapping[str, Any]) -> None:
    """Add the types of an object's members; a column of nulls is added with its first value."""
    _note(types, {name: json_type(value) for name, value in image.items() if value is not None})


def _note(types: _Types, more: _Types) -> None:
    for name, kind in more.items():
        known = types.setdefault(name, kind)
        if known != kind:
            types[name] = common(known, kind)


def _fields(types: _Types) -> tuple[Field, ...]:
    return tuple(Field(name, types[name]) for name in sorted(types))
