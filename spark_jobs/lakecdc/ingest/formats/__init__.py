"""Know what messages and records look like: formats declared by name, their schemas, the columns of frames."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakecdc.ingest.formats.envelope import Format


@cache
def find_format(name: str) -> Format:
    """Return a format by the name that specs give it.

    :raises KeyError: there is no such format.
    """
    from lakecdc.ingest.formats import canal_types, debezium_avro, debezium_schema
    from lakecdc.ingest.formats.envelope import Format

    debezium = Format(debezium_schema.fields, placeholders=True, tombstones=True, row_keys=True, wraps=True)
    flat = Format(debezium_schema.flat_fields, placeholders=True, tombstones=True, row_keys=True, wraps=True)
    avro = Format(
        debezium_schema.fields, placeholders=True, tombstones=True, row_keys=True, in_json=debezium_avro.in_json
    )
    return {
        "debezium-json": debezium,
        "debezium-flat-json": flat,
        "debezium-avro": avro,
        "canal-json": Format(canal_types.fields, doubts=canal_types.doubts),
        "maxwell-json": Format(),
        "ogg-json": Format(),
        "dms-json": Format(),
        "json": Format(tombstones=True),
    }[name]
