"""Decode messages in a test, down to the rows that a table would have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decode import decode
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.engine.packed import PackedRows
from lakecdc.ingest.fold import fold
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.messages import from_dumped_records, from_values
from tests.lakecdc.ingest.by_spark import with_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRODUCTS = Target("shop.products", key=("id",))


def decode_lines(
    spark: SparkSession,
    name: str,
    lines: Sequence[str],
    target: Target = PRODUCTS,
    known: Known | None = None,
    reading: Reading | None = None,
    *,
    records: bool = False,
    engine: str = "tasks",
) -> Decoded:
    """Decode event lines, or dumped Kafka records; a line's place in the list is its arrival.

    :param engine: see :func:`tests.lakecdc.ingest.by_spark.with_engine`.
    """
    rows = [(line, i, f"f#{i}") for i, line in enumerate(lines)]
    frame = spark.createDataFrame(rows, "value string, arrival bigint, place string")
    messages = from_dumped_records(frame) if records else from_values(frame)
    with with_engine(engine):
        return decode(lambda: messages, name, target, reading or Reading(1), known or Known({}))


def last_changes(decoded: Decoded) -> list[dict[str, Any]]:
    """Return the last change of each key, with the number of its events by op."""
    assert decoded.rows is not None
    columns = ("op", "key", "row", "open", "old_key", "order", "source_time", "n_r", "n_c", "n_u", "n_d")
    return [row.asDict(recursive=True) for row in fold(decoded.rows.frame).select(*columns).collect()]


def counted(decoded: Decoded) -> tuple[Any, ...]:
    """Return the numbers of events, their newest time and highest orders."""
    return decoded.events, decoded.newest, decoded.high_orders


def record(
    value: Any, key: Any = None, topic: str = "db.shop.products", partition: int = 0, offset: int = 0, **headers: Any
) -> str:
    """Return a dumped Kafka record."""
    pairs = [[f"__debezium.{name}", json.dumps(content)] for name, content in headers.items()]
    return json.dumps(
        {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": 1_700_000_000_000 + offset,
            "key": key,
            "value": value,
            "headers": pairs,
        }
    )


def state(decoded: Decoded, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows after the changes, by key."""
    assert decoded.rows is not None
    rows = fold(decoded.rows.every_event().frame).where("op != 'd'").select("row.*").collect()
    return sorted(tuple(r[c] for c in columns) for r in rows)


def is_folded(decoded: Decoded) -> bool:
    """Check whether tasks have folded the changes."""
    return isinstance(decoded.rows, PackedRows) and decoded.rows.folded


def rejections(decoded: Decoded) -> list[tuple[str, str]]:
    """Return rule and reason of each rejected message."""
    return (
        sorted((r["rule"], r["reason"]) for r in decoded.rejected.messages.collect())
        if decoded.rejected is not None
        else []
    )
