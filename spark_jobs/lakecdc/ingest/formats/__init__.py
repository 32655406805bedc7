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
    from lakecdc.ingest.formats import canal_types, debezium_avro, debezium_schema, payloads
    from lakecdc.ingest.formats.envelope import Format

    of_debezium = partial(Format, placeholders=True, tombstones=True, row_keys=True, payloads=payloads.unwrapped)
    return {
        "debezium-json": of_debezium(debezium.read, debezium_schema.fields, whole=True),
        "debezium-flat-json": of_debezium(debezium_flat.read, debezium_schema.flat_fields),
        "debezium-avro": of_debezium(
            debezium.read, debezium_schema.fields, payloads=debezium_avro.payloads, whole=True
        ),
        "canal-json": Format(canal.read, canal_types.fields, many_rows=True, doubts=canal_types.doubts),
        "maxwell-json": Format(maxwell.read),
        "ogg-json": Format(golden_gate.read),
        "dms-json": Format(dms.read),
        "json": Format(plain.read, tombstones=True, options=lambda reading: (reading.order_by, reading.only_added)),
    }[name]
