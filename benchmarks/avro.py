"""The measured events in Avro, as Debezium's converter writes them with a registry."""

from __future__ import annotations

import io
import json
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any

import fastavro
import pyarrow as pa

from lakecdc.ingest.formats.avro_schema import read_schema
from lakecdc.ingest.formats.debezium_avro import Schemas

_TYPES: dict[str, Any] = {
    "bigint": "long",
    "string": "string",
    "decimal(12,2)": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    "timestamp_ntz": {"type": "long", "logicalType": "timestamp-micros"},
}
_SOURCE = {**dict.fromkeys(("connector", "db", "schema", "table", "snapshot"), "string"), "lsn": "long"}
_SOURCE |= {"ts_ms": "long", "sequence": "string"}
_ID_BYTES = 4


def _record(name: str, types: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in types.items()]}


def schemas(columns: Mapping[str, str]) -> Schemas:
    """Return the schemas of a table's keys and events."""
    row = {name: _TYPES[kind] if name == "id" else ["null", _TYPES[kind]] for name, kind in columns.items()}
    event = {"before": ["null", _record("Value", row)], "after": ["null", "Value"]}
    event |= {"source": _record("Source", _SOURCE), "op": "string", "ts_ms": ["null", "long"]}
    documents = {1: _record("Key", {"id": "long"}), 2: _record("Envelope", event)}
    return Schemas({number: read_schema(json.dumps(one)) for number, one in documents.items()}, _ID_BYTES)


def messages(events: Iterable[bytes], columns: Mapping[str, str]) -> pa.RecordBatch:
    """Return messages of events in JSON whose decimals are in base64."""
    writers = {number: fastavro.parse_schema(json.loads(one.text)) for number, one in schemas(columns).by_id.items()}  # type: ignore[union-attr]

    def written(number: int, record: Any) -> bytes:
        out = io.BytesIO(b"\0" + number.to_bytes(_ID_BYTES, "big"))
        out.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(out, writers[number], record)
        return out.getvalue()

    keys, values = [], []
    for event in map(json.loads, events):
        images = [image for image in (event["after"], event["before"]) if image]
        for image in images:
            image["amount"] = b64decode(image["amount"])
        keys.append(written(1, {"id": images[0]["id"]}))
        values.append(written(2, event))
    count = len(keys)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.record_batch(
        {
            "topic": pa.array(["orders"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.nulls(count, pa.timestamp("us", "UTC")),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.nulls(count, headers),
            "arrival": pa.array(range(count), pa.int64()),
            "place": pa.array(map(str, range(count))),
        }
    )
