"""Read columns from a Kafka Connect schema in JSON, with Debezium's semantic types.

Source: Debezium documentation, "Data type mappings", and the schema JSON of Kafka Connect's JsonConverter.
"""

from __future__ import annotations

import json
from typing import Any

from lakecdc.ingest.envelopes.debezium_flat import PREFIX
from lakecdc.ingest.formats.values import Field

#: errors of reading a text that is not a schema
NO_SCHEMA = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
_PRIMITIVE = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
}
_SEMANTIC = {
    "io.debezium.time.Date": ("date", "epoch_days"),
    "org.apache.kafka.connect.data.Date": ("date", "epoch_days"),
    "io.debezium.time.Timestamp": ("timestamp_ntz", "epoch_millis"),
    "org.apache.kafka.connect.data.Timestamp": ("timestamp_ntz", "epoch_millis"),
    "io.debezium.time.MicroTimestamp": ("timestamp_ntz", "epoch_micros"),
    "io.debezium.time.NanoTimestamp": ("timestamp_ntz", "epoch_nanos"),
    "io.debezium.time.Time": ("string", "time_millis"),
    "org.apache.kafka.connect.data.Time": ("string", "time_millis"),
    "io.debezium.time.MicroTime": ("string", "time_micros"),
    "io.debezium.time.NanoTime": ("string", "time_nanos"),
    "io.debezium.time.ZonedTimestamp": ("timestamp", "plain"),
    "io.debezium.time.IsoDate": ("date", "plain"),
    "io.debezium.time.IsoTimestamp": ("timestamp_ntz", "plain"),
    "io.debezium.data.VariableScaleDecimal": ("string", "variable_decimal"),
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def fields(schema: str) -> tuple[Field, ...]:
    """Return the columns of a row image from the JSON of an envelope's or a flattened row's schema."""
    document = json.loads(schema)
    members = document.get("fields") or []
    image = next((m for m in members if m.get("field") == "after"), document)
    return tuple(field(m) for m in image.get("fields") or [])


def flat_fields(schema: str) -> tuple[Field, ...]:
    """Return the columns of a flattened row from the JSON of its schema."""
    members = json.loads(schema).get("fields") or []
    return tuple(field(m) for m in members if not m["field"].startswith(PREFIX))


def field(schema: dict[str, Any]) -> Field:
    """Return a column from a member's schema: objects and arrays stay JSON text, bytes become binary."""
    name, kind, semantic = schema["field"], schema.get("type"), schema.get("name")
    if semantic == _DECIMAL:
        return _decimal(name, schema.get("parameters") or {})
    if semantic in _SEMANTIC:
        sql_type, encoding = _SEMANTIC[semantic]
        return Field(name, sql_type, encoding)
    if kind == "bytes":
        return Field(name, "binary", "base64")
    return Field(name, _PRIMITIVE.get(str(kind), "string"))


def _decimal(name: str, parameters: dict[str, Any]) -> Field:
    """Return a decimal; a negative scale adds that many digits, for zeros that are not written."""
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", 38)) - min(scale, 0)
    places = max(scale, 0)
    fits = places <= precision <= 38
    return Field(name, f"decimal({precision},{places})" if fits else "string", "decimal_bytes", scale)
