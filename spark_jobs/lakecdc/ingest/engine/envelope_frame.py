"""Put what envelopes tell of messages beside these, as columns of a frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from lakecdc.ingest.engine.schemas import PAYLOAD
from lakecdc.ingest.formats import find_format

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lakecdc.ingest.engine.envelope_reader import EnvelopeReader
    from lakecdc.ingest.formats.envelope import Reading


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
    schema = ", ".join(f"`{name}` {kind}" for name, kind in messages.dtypes)
    more = "op string, source_table string, `order` string, source_time timestamp"
    return messages.mapInArrow(_EnvelopeTask(reader), f"{schema}, {more}")


class _EnvelopeTask:
    def __init__(self, reader: EnvelopeReader) -> None:
        self._reader = reader

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for messages in batches:
            reads = list(self._reader.read(messages))
            arrivals = messages.column("arrival").to_pylist()
            epoch = self._reader.reading.epoch
            rows = messages.take(pa.array([read.place for read in reads], pa.int64()))
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            columns |= {
                "op": pa.array([read.envelope.op for read in reads], pa.string()),
                "source_table": pa.array([read.envelope.source_table for read in reads], pa.string()),
                "order": pa.array([r.envelope.place.order(epoch, arrivals[r.place]) for r in reads], pa.string()),
                "source_time": pa.array([read.envelope.place.source_time for read in reads], pa.timestamp("us", "UTC")),
            }
            yield pa.RecordBatch.from_pydict(columns)
