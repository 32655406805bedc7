"""Read keys, headers, topics and partitions of messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.ingest.envelopes.debezium import OLD_KEY, unwrapped
from lakecdc.ingest.envelopes.message import Keys, Message

#: column with the order key of a tombstone that deletes the row of its key; null for all other messages
PLACED = "placed"
# messages decoded at once, and their bytes: decoding needs about ten times the memory
_ROWS, _BYTES = 16_384, 8 * 1024 * 1024


def cut_into_parts(messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split messages into parts that are decoded at once."""
    start = 0
    while start < messages.num_rows:
        rows = _ROWS
        while rows > 1 and messages.slice(start, rows).nbytes > _BYTES:
            rows //= 2
        yield messages.slice(start, rows)
        start += rows


def read_messages(messages: pa.RecordBatch) -> list[Message]:
    """Return messages with their keys; values are only null or empty."""
    tombstones = messages.column("value").is_null().to_pylist()
    topics = messages.column("topic").to_pylist()
    stamps = messages.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return [
        Message(None if is_gone else b"", key, topic, stamp, None if was is None else {OLD_KEY: was})
        for is_gone, key, topic, stamp, was in zip(
            tombstones, _keys(messages), topics, stamps, _old_keys(messages), strict=True
        )
    ]


def record_keys(messages: pa.RecordBatch) -> list[Keys | None]:
    """Return the keys of messages without an old key in their headers."""
    return [None if key is None else Keys(key, unwrapped=unwrapped) for key in _keys(messages)]


def has_old_key(messages: pa.RecordBatch) -> pa.Array:
    """Check which messages have a header with the row's old key."""
    if messages.column("headers").null_count == len(messages):
        return pa.repeat(False, len(messages))
    return pa.array([was is not None for was in _old_keys(messages)], pa.bool_())


def has_key_of(messages: pa.RecordBatch, key: Set[str]) -> pa.Array:
    """Check which messages have a key of these columns, or none."""
    keys = record_keys(messages)
    return pa.array([agrees(None if one is None else one.record_key(), key) for one in keys], pa.bool_())


def agrees(names: Iterable[str] | None, key: Set[str]) -> bool:
    """Check that a message names the columns of a key, or no columns."""
    return not names or key == {*names}


def partitions(messages: pa.RecordBatch) -> pa.Array:
    """Return ``topic/partition`` of each message, only the partition without a topic."""
    partition = messages.column("partition").cast(pa.string())
    topic = messages.column("topic")
    return pc.if_else(topic.is_valid(), pc.binary_join_element_wise(topic, partition, "/"), partition)


def last_names(messages: pa.RecordBatch, place: int) -> str | None:
    """Return the last two parts of a message's topic, which is named like its table."""
    topic = messages.column("topic")[place].as_py() if "topic" in messages.schema.names else None
    return None if topic is None else ".".join(topic.rsplit(".", 2)[-2:])


def _keys(messages: pa.RecordBatch) -> list[bytes | None]:
    keys: list[bytes | None] = messages.column("key").cast(pa.binary()).to_pylist()
    return keys


def _old_keys(messages: pa.RecordBatch) -> list[bytes | None]:
    headers = messages.column("headers")
    if headers.null_count == len(headers):
        return [None] * len(headers)
    return [next((each["value"] for each in row or () if each["key"] == OLD_KEY), None) for row in headers.to_pylist()]
