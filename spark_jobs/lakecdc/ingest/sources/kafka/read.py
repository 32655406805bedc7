"""Reading ranges of offsets as message frames: each Spark task consumes one piece of one partition.

The consumer is librdkafka inside the Python task, so that executors need the package ``confluent-kafka`` and no jar.
A piece is read again from the same offsets whenever Spark needs it again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.ingest.formats.messages import SCHEMA
from lakecdc.ingest.formats.native import Scan
from lakecdc.ingest.sources.kafka.cluster import consumer_settings
from lakecdc.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# messages whose keys one task folds
_MESSAGES_PER_FOLD = 500_000
# rows of one Arrow batch: large enough to be vectors, small enough for memory
_ROWS = 4096
# below this many offsets a consumer of its own is not worth its start
_SMALLEST_PIECE = 20_000
_PATIENCE_SECONDS = 60.0
# what decoding needs of a message
_DECODED = ("topic", "partition", "key", "value", "headers", "arrival")
# errors that the client gets over by itself while a broker is away
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


@dataclass(frozen=True)
class Range:
    """Offsets of one partition, ``start`` included, ``end`` not."""

    topic: str
    partition: int
    start: int
    end: int


def messages(spark: SparkSession, settings: Mapping[str, Any], ranges: Sequence[Range]) -> DataFrame:
    """The messages of some ranges as a message frame.

    :param settings: client settings, secrets resolved; they travel inside the task, not in Spark's configuration.
    :param ranges: not empty.
    """
    pieces = split(ranges, spark.sparkContext.defaultParallelism)
    read = _Reader(consumer_settings(settings), tuple(pieces))
    return spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(read, SCHEMA)


def scan(spark: SparkSession, settings: Mapping[str, Any], ranges: Sequence[Range]) -> Scan:
    """The same messages, consumed by the tasks that decode them.

    :param settings: and the ranges as for :func:`messages`.
    """
    pieces = split(ranges, spark.sparkContext.defaultParallelism)
    read = _Tables(_Reader(consumer_settings(settings), tuple(pieces)))
    groups = min(spark.sparkContext.defaultParallelism, len(pieces))
    total = sum(r.end - r.start for r in ranges)
    return Scan(spark, read, len(pieces), max(groups, -(-total // _MESSAGES_PER_FOLD)), True)


def split(ranges: Sequence[Range], parallelism: int) -> list[Range]:
    """Cut ranges into pieces of about the same size, so that all cores have work.

    :param parallelism: pieces to aim at.
    """
    total = sum(r.end - r.start for r in ranges)
    size = max(_SMALLEST_PIECE, -(-total // max(1, parallelism)))
    return [
        Range(r.topic, r.partition, low, min(low + size, r.end)) for r in ranges for low in range(r.start, r.end, size)
    ]


class _Reader:
    """The function of the tasks; it is pickled with what it needs."""

    def __init__(self, settings: dict[str, Any], pieces: tuple[Range, ...]) -> None:
        self._settings, self._pieces = settings, pieces

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(self._pieces[number])

    def _read(self, piece: Range) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self._settings)
        try:
            consumer.assign([TopicPartition(piece.topic, piece.partition, piece.start)])
            yield from _until_end(consumer, piece)
        finally:
            consumer.close()


@dataclass(frozen=True)
class _Tables:
    """The reader as the native engine calls it."""

    reader: _Reader

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        import pyarrow as pa

        for batch in self.reader(batches):
            yield pa.Table.from_batches([batch.select(list(_DECODED))])


def _until_end(consumer: Any, piece: Range) -> Iterator[pa.RecordBatch]:
    """Consume until a record or the partition's own end lies at or behind the piece's end.

    Aborted and compacted records and transaction markers leave holes, so that the end itself may never be seen.
    """
    heard = time.monotonic()
    while True:
        found = consumer.consume(_ROWS, 0.1)
        inside, reached = _sorted_out(found, piece)
        if inside:
            yield _arrow(inside)
            heard = time.monotonic()
        if reached:
            return
        if time.monotonic() - heard > _PATIENCE_SECONDS:
            raise TimeoutError(f"Kafka sends nothing of {piece} for {_PATIENCE_SECONDS:.0f} s.")


def _sorted_out(found: Sequence[Any], piece: Range) -> tuple[list[Any], bool]:
    from confluent_kafka import KafkaError, KafkaException

    passing = {getattr(KafkaError, name) for name in _PASSING}
    inside, reached = [], False
    for message in found:
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


def _arrow(found: Sequence[Any]) -> pa.RecordBatch:
    import pyarrow as pa

    topic, partition = found[0].topic(), found[0].partition()
    offsets = [m.offset() for m in found]
    prefix = f"{topic}/{partition}@"
    count = len(found)
    offset = pa.array(offsets, pa.int64())
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {
        "topic": pa.array([topic] * count, pa.string()),
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": offset,
        "timestamp": pa.array([_microseconds(m.timestamp()) for m in found], pa.timestamp("us", tz="UTC")),
        "key": pa.array([m.key() for m in found], pa.binary()),
        "value": pa.array([m.value() for m in found], pa.binary()),
        "headers": pa.array([_headers(m.headers()) for m in found], header),
        "arrival": offset,
        "place": pa.array([f"{prefix}{o}" for o in offsets], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def _microseconds(timestamp: tuple[int, int]) -> int | None:
    kind, milliseconds = timestamp
    return milliseconds * 1000 if kind and milliseconds >= 0 else None


def _headers(headers: Sequence[tuple[str, Any]] | None) -> list[dict[str, Any]] | None:
    if headers is None:
        return None
    return [{"key": k, "value": v.encode() if isinstance(v, str) else v} for k, v in headers]
