"""Convert messages of Debezium in Avro to JSON in tasks, so that both formats share the rest of the code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from lakecdc.iceberg.core_time import run_tasks
from lakecdc.ingest.envelopes.debezium import OLD_KEY
from lakecdc.ingest.envelopes.json_values import Numbers, letters_of
from lakecdc.ingest.formats.avro_columns import PADDING, each_group, read_records
from lakecdc.ingest.formats.avro_registry import Registry, id_headers, schema_id
from lakecdc.ingest.formats.avro_schema import AvroSchema
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.payloads import Payloads

# id of the schema of a message without one
_WITHOUT = -1
#: yields messages, given the rows that Spark passes to a task
_Read = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
# headers of a message by name
_Headers = Sequence[Mapping[str, bytes]]


@dataclass(frozen=True)
class _Records:
    """Records in messages.

    :param data: the messages, of type binary.
    :param ids: ids of the records' schemas; :data:`_WITHOUT` for messages without one.
    :param octets: bytes of the messages, with :data:`PADDING`.
    :param starts: places of the records' first bytes.
    :param ends: places behind their last bytes.
    """

    data: pa.Array
    ids: Numbers
    octets: Numbers
    starts: Numbers
    ends: Numbers


@dataclass(frozen=True)
class Schemas:
    """Schemas that the messages of a batch refer to.

    :param by_id: the schemas, or why one cannot be used.
    :param id_bytes: bytes of an id in a message.
    """

    by_id: Mapping[int, AvroSchema | str]
    id_bytes: int

    def ids(self, messages: pa.RecordBatch) -> set[int]:
        """Return the ids of all schemas that messages refer to."""
        ids = np.concatenate([records.ids for records in self._records(messages)])
        return {*ids.tolist()} - {_WITHOUT}

    def payloads(self, messages: pa.RecordBatch) -> Payloads:
        """Return the payloads of messages in Avro."""
        values, keys, old_keys = self._records(messages)
        columns = dict(zip(messages.schema.names, messages.columns, strict=True))
        columns["key"] = self._keys(keys)
        columns["headers"] = _linked(self._keys(old_keys), columns["headers"].type)
        texts = self._texts(values)
        connect = {number: schema.connect for number, schema in self.by_id.items() if isinstance(schema, AvroSchema)}
        each = list(zip(values.ids.tolist(), *(a.is_valid().to_pylist() for a in (texts, values.data)), strict=True))
        return Payloads(
            pa.RecordBatch.from_pydict(columns),
            texts,
            [connect[number] if is_read else None for number, is_read, _ in each],
            [self._problem(number) if has_value and not is_read else None for number, is_read, has_value in each],
        )

    def _records(self, messages: pa.RecordBatch) -> Iterator[_Records]:
        """Yield the values, keys and old keys of messages."""
        headers, nothing = messages.column("headers"), pa.nulls(len(messages), pa.binary())
        by_name: _Headers = []
        if headers.null_count < len(messages):
            by_name = [{each["key"]: each["value"] for each in row or ()} for row in headers.to_pylist()]
            nothing = pa.array([row.get(OLD_KEY) for row in by_name], pa.binary())
        for part in ("value", "key"):
            yield _find_records(messages.column(part).cast(pa.binary()), self.id_bytes, by_name, id_headers(part))
        yield _find_records(nothing, self.id_bytes)

    def _keys(self, records: _Records) -> pa.Array:
        """Return keys as JSON; unchanged without an id, because they may have another converter."""
        texts = pc.fill_null(self._texts(records), b"null")
        return pc.if_else(pa.array(records.ids == _WITHOUT), records.data, texts)

    def _texts(self, records: _Records) -> pa.Array:
        """Return records as JSON; null for those that cannot be read."""

        def read(number: int, rows: Numbers) -> pa.Array:
            schema = self.by_id.get(number)
            if not isinstance(schema, AvroSchema):
                return pa.nulls(len(rows), pa.binary())
            return read_records(schema, records.octets, records.starts[rows], records.ends[rows])

        return each_group(records.ids, read)

    def _problem(self, number: int) -> str:
        """Return why a record cannot be read."""
        if number == _WITHOUT:
            return "not-avro: the value does not begin with the id of a schema"
        schema = self.by_id[number]
        return (
            f"unknown-schema: {schema}"
            if isinstance(schema, str)
            else f"not-avro: the bytes do not fit schema {number}"
        )


def _find_records(data: pa.Array, id_bytes: int, headers: _Headers = (), names: Iterable[str] = ()) -> _Records:
    """Find the records in messages, and the ids of their schemas before them or in headers with these names."""
    letters, edges = letters_of(data)
    octets = np.concatenate([letters, np.zeros(PADDING, np.uint8)])
    starts, ends = edges[:-1].astype(np.int64), edges[1:].astype(np.int64)
    ids = np.zeros(len(data), np.int64)
    for place in range(1, id_bytes + 1):
        ids = ids << 8 | octets[starts + place]
    has_id = (ends - starts > 1 + id_bytes) & (octets[starts] == 0)
    ids = np.where(has_id & (ids >= 0), ids, _WITHOUT)
    begins = np.where(has_id, starts + 1 + id_bytes, starts)
    for row, values in enumerate(headers):
        in_header = next((values[name] for name in names if name in values), None)
        if in_header is not None:
            number = schema_id(in_header)
            ids[row], begins[row] = _WITHOUT if number is None else number, starts[row]
    ids[data.is_null().to_numpy(zero_copy_only=False)] = _WITHOUT
    return _Records(data, ids, octets, begins, ends)


def _linked(old_keys: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return headers with the old keys."""
    if old_keys.null_count == len(old_keys):
        return pa.nulls(len(old_keys), kind)
    headers = [None if key is None else [{"key": OLD_KEY, "value": key}] for key in old_keys.to_pylist()]
    return pa.array(headers, kind)


def read_schemas(registry: Registry, rows: DataFrame, read: _Read | None) -> Schemas:
    """Return the schemas of a batch's messages, whose ids are collected first.

    :param read: reads the messages of the rows; None if these are the messages.
    """
    task = partial(_collect_ids, Schemas({}, registry.id_bytes), read or iter)
    ids = {row["id"] for row in run_tasks(rows, task, "id bigint").collect()}
    return Schemas(registry.schemas(sorted(ids)), registry.id_bytes)


def _collect_ids(schemas: Schemas, read: _Read, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    ids = set().union(*map(schemas.ids, read(batches)))
    yield pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})


def payloads(messages: pa.RecordBatch, reading: Reading) -> Payloads:
    """Return the payloads of messages in Avro."""
    assert reading.schemas is not None
    return reading.schemas.payloads(messages)
