"""Put the contents of envelopes beside their messages, and find the tombstones that are deletes.

On a compacted topic a tombstone may be the only sign that a row was deleted. It carries no position, and is placed
right behind the last event before it in its partition, which is where the log had it or earlier than anything after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakecdc.ingest.engine.envelope_reader import EnvelopeReader
from lakecdc.ingest.engine.schemas import PAYLOAD
from lakecdc.ingest.formats import find_format
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.message_columns import PLACED
from lakecdc.model.order import ARRIVAL_DIGITS, EVENT_DIGITS, order_key

_TOLD = {"op": "string", "source_table": "string", "order": "string", "source_time": "timestamp"}


def in_json(messages: DataFrame, format_name: str, reading: Reading) -> DataFrame:
    """Return messages as an envelope reader takes them: JSON, or with JSON beside their records."""
    to_json = find_format(format_name).in_json
    if to_json is None or PAYLOAD in messages.columns:
        return messages
    return to_json(messages, reading).messages


def envelope_frame(messages: DataFrame, reader: EnvelopeReader) -> DataFrame:
    """Return messages, once for each of their envelopes.

    :return: their columns, ``op``, ``source_table``, ``order`` (the order key) and ``source_time``.
    """
    schema = ", ".join(f"`{name}` {kind}" for name, kind in [*messages.dtypes, *_TOLD.items()])
    return messages.mapInArrow(partial(_with_envelopes, reader), schema)


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
    """Return the tombstones that no delete event explains, with an order key.

    :param envelopes: all envelopes of the batch, see :func:`envelope_frame`.
    :param marks: highest order key applied by ``topic/partition``, for tombstones that come first in their partition.
    :param high_order: highest order key applied at all, where there are no marks.
    :return: these messages with the order key in ``placed``; None if there are none.
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
    return alone.drop(*_TOLD)
