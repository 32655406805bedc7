"""Decoding messages in a test, down to the rows that a table would hold."""

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
from tests.lakecdc.ingest.by_spark import made_by

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

    :param engine: see :func:`tests.lakecdc.ingest.by_spark.made_by`.
    """
    rows = [(line, i, f"f#{i}") for i, line in enumerate(lines)]
    frame = spark.createDataFrame(rows, "value string, arrival bigint, place string")
    messages = from_dumped_records(frame) if records else from_values(frame)
    with made_by(engine):
        return decode(lambda: messages, name, target, reading or Reading(1), known or Known({}))


def last_changes(found: Decoded) -> list[dict[str, Any]]:
    """The last change of each key, with the number of its events by op."""
    assert found.rows is not None
    columns = ("op", "key", "row", "open", "old_key", "order", "source_time", "n_r", "n_c", "n_u", "n_d")
    return [row.asDict(recursive=True) for row in fold(found.rows.frame).select(*columns).collect()]


def counted(found: Decoded) -> tuple[Any, ...]:
    """How many events there are, and how far they reach."""
    return found.events, found.newest, found.high_orders


def record(
    value: Any, key: Any = None, topic: str = "db.shop.products", partition: int = 0, offset: int = 0, **headers: Any
) -> str:
    """A dumped Kafka record."""
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


def state(found: Decoded, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows that the changes leave, by key."""
    assert found.rows is not None
    rows = fold(found.rows.every_event().frame).where("op != 'd'").select("row.*").collect()
    return sorted(tuple(r[c] for c in columns) for r in rows)


def is_folded(found: Decoded) -> bool:
    """Whether tasks have folded the changes."""
    return isinstance(found.rows, PackedRows) and found.rows.folded


def rejections(found: Decoded) -> list[tuple[str, str]]:
    """Rule and reason of what cannot be applied."""
    return (
        sorted((r["rule"], r["reason"]) for r in found.rejected.messages.collect())
        if found.rejected is not None
        else []
    )
