"""Convert messages of Debezium in Avro to JSON in tasks, so that both formats share the rest of the code."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from lakecdc.iceberg.core_time import run_tasks
from lakecdc.ingest.envelopes.debezium import OLD_KEY
from lakecdc.ingest.formats.avro_registry import Registry, id_headers, split_id
from lakecdc.ingest.formats.avro_schema import AvroSchema
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.payloads import Payloads

_NO_ID = "not-avro: the value does not begin with the id of a schema"
#: yields messages, given the rows that Spark passes to a task
_Read = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
# id of the schema and bytes of a record; None without a record
_Record = tuple[int | None, bytes] | None


@dataclass(frozen=True)
class Schemas:
    """Schemas that the messages of a batch refer to.

    :param by_id: the schemas, or why one cannot be used.
    :param id_bytes: bytes of an id in a message.
    """

    by_id: Mapping[int, AvroSchema | str]
    id_bytes: int

    def key(self, record: _Record) -> bytes | None:
        """Return a key as JSON; unchanged without an id, because it may have another converter."""
        if record is None or record[0] is None:
            return record and record[1]
        return self.value(record)[0] or b"null"

    def value(self, record: _Record) -> tuple[bytes | None, bytes | None, str | None]:
        """Return the JSON of a record, its schema, and why it cannot be read."""
        if record is None:
            return None, None, None
        number, data = record
        if number is None:
            return None, None, _NO_ID
        schema = self.by_id[number]
        if isinstance(schema, str):
            return None, None, f"unknown-schema: {schema}"
        try:
            return schema.to_json(io.BytesIO(data)), schema.connect, None
        except Exception:
            # of any type
            return None, None, f"not-avro: the bytes do not fit schema {number}"

    def records(self, messages: pa.RecordBatch) -> list[list[_Record]]:
        """Return the values, keys and old keys of messages."""
        headers = [{h["key"]: h["value"] for h in row or ()} for row in messages.column("headers").to_pylist()]
        parts = [(messages.column(part).to_pylist(), id_headers(part)) for part in ("value", "key")]
        parts.append(([header.get(OLD_KEY) for header in headers], ()))
        return [[self._record(*each, names) for each in zip(data, headers, strict=True)] for data, names in parts]

    def _record(self, data: bytes | None, headers: Mapping[str, bytes], names: Iterable[str]) -> _Record:
        number = next((headers[name] for name in names if name in headers), None) if headers else None
        return None if data is None else split_id(data, number, self.id_bytes)


def read_schemas(registry: Registry, rows: DataFrame, read: _Read | None) -> Schemas:
    """Return the schemas of a batch's messages, whose ids are collected first.

    :param read: reads the messages of the rows; None if these are the messages.
    """
    task = partial(_collect_ids, Schemas({}, registry.id_bytes), read or iter)
    ids = {row["id"] for row in run_tasks(rows, task, "id bigint").collect()}
    return Schemas(registry.schemas(sorted(ids)), registry.id_bytes)


def _collect_ids(schemas: Schemas, read: _Read, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    ids = {record[0] for messages in read(batches) for part in schemas.records(messages) for record in part if record}
    yield pa.RecordBatch.from_pydict({"id": pa.array(ids - {None}, pa.int64())})


def payloads(messages: pa.RecordBatch, reading: Reading) -> Payloads:
    """Return the payloads of messages in Avro."""
    schemas = reading.schemas
    assert schemas is not None
    values, keys, old_keys = schemas.records(messages)
    read = [schemas.value(record) for record in values]
    linked = [None if key is None else [{"key": OLD_KEY, "value": schemas.key(key)}] for key in old_keys]
    columns = dict(zip(messages.schema.names, messages.columns, strict=True))
    columns["key"] = pa.array([schemas.key(record) for record in keys], pa.binary())
    columns["headers"] = pa.array(linked, messages.column("headers").type)
    texts = pa.array([value for value, _, _ in read], pa.binary())
    converted = pa.RecordBatch.from_pydict(columns)
    return Payloads(converted, texts, [schema for _, schema, _ in read], [problem for _, _, problem in read])
