"""Read the envelopes of messages inside tasks, and find the tombstones that are deletes.

On a compacted topic a tombstone may be the only sign of a deleted row. It has no position, so it is placed right after
the last event before it in its partition, which is its place in the log, or before everything after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakecdc.iceberg.core_time import run_tasks
from lakecdc.ingest.envelopes.json_values import Object, UnreadableError, parse_each
from lakecdc.ingest.envelopes.message import Envelope, Keys, as_text, read_message
from lakecdc.ingest.formats import find_format
from lakecdc.ingest.formats.envelope import Read, Reading
from lakecdc.ingest.formats.message_columns import PLACED, read_messages
from lakecdc.ingest.formats.values import Field
from lakecdc.model.order import ARRIVAL_DIGITS, EVENT_DIGITS, order_key

_MOST_SCHEMAS = 64


class EnvelopeReader:
    """Read the envelopes of one format.

    :param fixed: columns whose types the target declares, so schemas do not matter.
    :param fold_case: convert column names to lower case.
    """

    def __init__(self, format_name: str, reading: Reading, fixed: Collection[str], *, fold_case: bool = False) -> None:
        # tasks have no use for a registry, which may hold a password
        self.format, self.reading = format_name, replace(reading, registry=None)
        self.fold_case, self._fixed = fold_case, frozenset(fixed)

    def columns_of(self, schema: str) -> tuple[Field, ...]:
        """Return the columns in the text of a schema; empty if it is not in the format's notation."""
        return _columns_of(self.format, schema, self.fold_case)

    def read(self, messages: pa.RecordBatch) -> Iterator[Read]:
        """Yield the envelopes of messages; every message has at least one."""
        own = find_format(self.format)
        rows, payloads = own.rows(self.reading), own.payloads(messages, self.reading)
        each = zip(read_messages(payloads.messages), parse_each(payloads.values), payloads.problems, strict=True)
        for place, (message, value, problem) in enumerate(each):
            schema = payloads.schemas[place]
            if problem is not None:
                rule, _, reason = problem.partition(": ")
                value = UnreadableError(rule, reason)
            for envelope in read_message(rows, message, value):
                yield self._read(place, envelope, None if schema is None else schema.decode())

    def _read(self, place: int, envelope: Envelope, schema: str | None) -> Read:
        schema = as_text(envelope.schema) if schema is None else schema
        if self.fold_case:
            envelope = _fold_names(envelope)
        doubt = None if schema is None or envelope.problem else _doubt(self.format, schema, self._fixed, self.fold_case)
        if doubt:
            envelope = msgspec.structs.replace(envelope, problem=("unknown-type", doubt))
        if envelope.problem is not None and envelope.op is not None:
            # an unreadable message is not a row event
            envelope = msgspec.structs.replace(envelope, op=None)
        return Read(place, envelope, schema)


@lru_cache(_MOST_SCHEMAS)
def _columns_of(format_name: str, schema: str, fold_case: bool) -> tuple[Field, ...]:
    columns = find_format(format_name).columns_of(schema)
    return tuple(replace(f, name=f.name.lower()) for f in columns) if fold_case else columns


@lru_cache(_MOST_SCHEMAS)
def _doubt(format_name: str, schema: str, fixed: frozenset[str], fold_case: bool) -> str | None:
    own_format = find_format(format_name)
    if fold_case:
        doubts = own_format.doubts
        own_format = replace(own_format, doubts=lambda text: tuple(name.lower() for name in doubts(text)))
    return own_format.doubted_of(schema, fixed)


def _fold_names(envelope: Envelope) -> Envelope:
    keys = envelope.keys
    if keys is not None:
        keys = Keys(keys.record, keys.old, partial(_fold_key, keys.unwrapped))
    return msgspec.structs.replace(
        envelope,
        before=_fold(envelope.before),
        after=_fold(envelope.after),
        keys=keys,
        key_names=envelope.key_names and tuple(name.lower() for name in envelope.key_names),
    )


def _fold_key(unwrapped: Any, value: Any) -> Any:
    key = unwrapped(value)
    return _fold(key) if isinstance(key, dict) else key


def _fold(image: Object | None) -> Object | None:
    """Return a row image with names in lower case; unchanged if two names would become equal."""
    folded = {name.lower(): value for name, value in (image or {}).items()}
    return folded if image and len(folded) == len(image) else image


_READ_COLUMNS = {"op": "string", "source_table": "string", "order": "string", "source_time": "timestamp"}


def envelope_frame(messages: DataFrame, reader: EnvelopeReader) -> DataFrame:
    """Return the envelopes of messages, each with its message.

    :return: the messages' columns, ``op``, ``source_table``, ``order`` (the order key) and ``source_time``.
    """
    schema = ", ".join(f"`{name}` {kind}" for name, kind in [*messages.dtypes, *_READ_COLUMNS.items()])
    return run_tasks(messages, partial(_with_envelopes, reader), schema)


def _with_envelopes(reader: EnvelopeReader, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    epoch = reader.reading.epoch
    for messages in batches:
        reads, arrivals = list(reader.read(messages)), messages.column("arrival").to_pylist()
        envelopes = [read.envelope for read in reads]
        rows = messages.take(pa.array([read.place for read in reads], pa.int64()))
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns |= {
            "op": pa.array([one.op for one in envelopes], pa.string()),
            "source_table": pa.array([one.source_table for one in envelopes], pa.string()),
            "order": pa.array([r.envelope.place.order(epoch, arrivals[r.place]) for r in reads], pa.string()),
            "source_time": pa.array([one.place.source_time for one in envelopes], pa.timestamp("us", "UTC")),
        }
        yield pa.RecordBatch.from_pydict(columns)


def lone_tombstones(
    envelopes: DataFrame, marks: Mapping[str, str] | None, high_order: str | None, reading: Reading
) -> DataFrame | None:
    """Return the tombstones without a delete event, with an order key.

    :param envelopes: all envelopes of the batch, see :func:`envelope_frame`.
    :param marks: highest order key applied by ``topic/partition``, for the first tombstones of a partition.
    :param high_order: highest order key applied, used without marks.
    :return: the tombstones with the order key in ``placed``; None if there are none.
    """
    named = envelopes.where("topic IS NOT NULL AND offset IS NOT NULL")
    tombstones = named.where("op = 'x' AND key IS NOT NULL")
    deletes = named.where("op = 'd'").select("topic", "partition", "key").distinct()
    lone = tombstones.join(deletes, ["topic", "partition", "key"], "left_anti").select("topic", "partition").distinct()
    lone = lone.localCheckpoint()
    if lone.isEmpty():
        return None
    there = named.join(F.broadcast(lone), ["topic", "partition"], "left_semi")
    before = Window.partitionBy("topic", "partition").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    first = F.lit(high_order or order_key(reading.epoch, 0))
    if marks:
        known = F.create_map(*[F.lit(x) for pair in marks.items() for x in pair])
        first = F.coalesce(F.try_element_at(known, F.concat_ws("/", "topic", "partition")), first)
    last = F.coalesce(F.max(F.when(F.col("op") != "x", F.col("order"))).over(before), first)
    offset = F.lpad(F.lower(F.hex("offset")), ARRIVAL_DIGITS, "0")
    order = F.concat(F.substring(last, 1, EVENT_DIGITS), offset)
    behind = there.withColumn(PLACED, F.greatest(order, last)).where("op = 'x' AND key IS NOT NULL")
    alone = behind.join(deletes, ["topic", "partition", "key"], "left_anti")
    return alone.drop(*_READ_COLUMNS)
