"""Read ranges of offsets by librdkafka: each Spark task consumes one piece of one partition.

Executors need the package ``confluent-kafka`` and no jar. Spark may repeat a task, which reads the same offsets again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from lakecdc.ingest.engine.run import Scan
from lakecdc.ingest.sources.kafka.cluster import SAMPLE, Range, Record, count, split
from lakecdc.ingest.sources.kafka.librdkafka import LibrdkafkaCluster, consumer_settings
from lakecdc.runtime.worker import settle

# messages whose keys one task folds
_MESSAGES_PER_FOLD = 500_000
# rows of one Arrow batch: large enough for vectors, small enough for memory
_ROWS = 4096
_PATIENCE_SECONDS = 60.0
_SAMPLE_SECONDS = 3.0
# errors from which the client recovers by itself while a broker is away
_PASSING = (
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_RESOLVE",
    "_TIMED_OUT",
    "REQUEST_TIMED_OUT",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "BROKER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
)


class LibrdkafkaReader(LibrdkafkaCluster):
    """Client that uses librdkafka; its settings are part of the tasks, not of Spark's configuration."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self._spark = spark

    def messages(self, ranges: Sequence[Range]) -> DataFrame:
        return self.scan(ranges).frame()

    def scan(self, ranges: Sequence[Range]) -> Scan:
        parallelism = self._spark.sparkContext.defaultParallelism
        pieces = split(ranges, parallelism)
        read = _Consume(consumer_settings(self.settings), tuple(pieces))
        groups = max(min(parallelism, len(pieces)), -(-count(ranges) // _MESSAGES_PER_FOLD))
        return Scan(self._spark, read, len(pieces), groups, True)

    def sample(self, ranges: Sequence[Range]) -> list[Record]:
        if not ranges:
            return []
        consumer = Consumer({**consumer_settings(self.settings), "queued.max.messages.kbytes": 1024})
        try:
            consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in ranges])
            return _first_records(consumer, len(ranges))
        finally:
            consumer.close()

    def close(self) -> None:
        """Do nothing: no connection stays open."""


@dataclass(frozen=True)
class _Consume:
    """Consume pieces, by number, in a task."""

    settings: Mapping[str, Any] = field(repr=False)
    pieces: tuple[Range, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(self.pieces[number])

    def _read(self, piece: Range) -> Iterator[pa.RecordBatch]:
        consumer = Consumer({**self.settings})
        try:
            consumer.assign([TopicPartition(piece.topic, piece.partition, piece.start)])
            yield from _until_end(consumer, piece)
        finally:
            consumer.close()


def _first_records(consumer: Consumer, partitions: int) -> list[Record]:
    records: list[Record] = []
    while partitions and len(records) < SAMPLE:
        messages = consumer.consume(SAMPLE, 0.2) or consumer.consume(1, _SAMPLE_SECONDS)
        if not messages:
            break
        for message in messages:
            error = message.error()
            if error is None:
                headers = message.headers()
                pairs = list(headers.items()) if isinstance(headers, dict) else headers
                records.append((message.key(), message.value(), pairs))
            elif error.code() == KafkaError._PARTITION_EOF:
                partitions -= 1
    return records


def _until_end(consumer: Any, piece: Range) -> Iterator[pa.RecordBatch]:
    """Consume until a record, or the partition's end, is at or beyond the piece's end.

    Aborted and compacted records and transaction markers leave holes, so the last offset itself may not exist.
    """
    heard = time.monotonic()
    while True:
        messages = consumer.consume(_ROWS, 0.1)
        inside, reached = _sorted_out(messages, piece)
        if inside:
            yield _arrow(inside)
            heard = time.monotonic()
        if reached:
            return
        if time.monotonic() - heard > _PATIENCE_SECONDS:
            raise TimeoutError(f"Kafka has sent nothing of {piece} for {_PATIENCE_SECONDS:.0f} s.")


def _sorted_out(messages: Sequence[Any], piece: Range) -> tuple[list[Any], bool]:
    passing = {getattr(KafkaError, name) for name in _PASSING}
    inside, reached = [], False
    for message in messages:
        error = message.error()
        if error is None:
            if message.offset() < piece.end:
                inside.append(message)
                reached |= message.offset() == piece.end - 1
            else:
                reached = True
        elif error.code() == KafkaError._PARTITION_EOF:
            reached |= message.offset() >= piece.end
        elif error.code() not in passing:
            raise KafkaException(error, f"{piece} cannot be read: {error.str()}")
    return inside, reached


def _arrow(messages: Sequence[Any]) -> pa.RecordBatch:
    topic, partition = messages[0].topic(), messages[0].partition()
    offsets = [m.offset() for m in messages]
    prefix = f"{topic}/{partition}@"
    count = len(messages)
    offset = pa.array(offsets, pa.int64())
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {
        "topic": pa.array([topic] * count, pa.string()),
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": offset,
        # kind 0 is a record without a time
        "timestamp": pa.array(
            [moment * 1000 if kind and moment >= 0 else None for kind, moment in (m.timestamp() for m in messages)],
            pa.timestamp("us", tz="UTC"),
        ),
        "key": pa.array([m.key() for m in messages], pa.binary()),
        "value": pa.array([m.value() for m in messages], pa.binary()),
        "headers": pa.array([_headers(m.headers()) for m in messages], header),
        "arrival": offset,
        "place": pa.array([f"{prefix}{o}" for o in offsets], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _headers(headers: Sequence[tuple[str, Any]] | None) -> list[dict[str, Any]] | None:
    if headers is None:
        return None
    return [{"key": k, "value": v.encode() if isinstance(v, str) else v} for k, v in headers]
