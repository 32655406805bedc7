"""Declare the formats of messages and records: names, schemas, columns of frames."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakecdc.ingest.formats.envelope import Format


@cache
def find_format(name: str) -> Format:
    """Return a format by its name in specs.

    :raises KeyError: the format does not exist.
    """
    from lakecdc.ingest.envelopes import canal, debezium, debezium_flat, dms, golden_gate, maxwell, plain
    from lakecdc.ingest.formats import canal_types, debezium_avro, debezium_schema
    from lakecdc.ingest.formats.envelope import Format

    of_debezium = partial(Format, placeholders=True, tombstones=True, row_keys=True)
    return {
        "debezium-json": of_debezium(debezium.read, debezium_schema.fields, wraps=True, whole=True),
        "debezium-flat-json": of_debezium(debezium_flat.read, debezium_schema.flat_fields, wraps=True),
        "debezium-avro": of_debezium(debezium.read, debezium_schema.fields, whole=True, in_json=debezium_avro.in_json),
        "canal-json": Format(canal.read, canal_types.fields, many_rows=True, doubts=canal_types.doubts),
        "maxwell-json": Format(maxwell.read),
        "ogg-json": Format(golden_gate.read),
        "dms-json": Format(dms.read),
        "json": Format(plain.read, tombstones=True, options=lambda reading: (reading.order_by, reading.only_added)),
    }[name]
