"""Know what messages and records look like: formats declared by name, their schemas, the columns of frames."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecdc.ingest.envelopes.message import Rows
    from lakecdc.ingest.formats.envelope import Format, Reading
    from lakecdc.ingest.formats.values import Field


@cache
def find_format(name: str) -> Format:
    """Return a format by the name that specs give it.

    :raises KeyError: there is no such format.
    """
    from lakecdc.ingest.envelopes import canal, debezium, debezium_flat, dms, golden_gate, maxwell, plain
    from lakecdc.ingest.formats import canal_types, debezium_avro, debezium_schema
    from lakecdc.ingest.formats.envelope import Format

    def format_of(rows: Rows, *fields: Callable[[str], tuple[Field, ...]], **traits: Any) -> Format:
        return Format(lambda _: rows, *fields, **traits)

    def plain_rows(reading: Reading) -> Rows:
        return partial(plain.read, reading.order_by, "c" if reading.only_added else "u")

    of_debezium = partial(format_of, placeholders=True, tombstones=True, row_keys=True)
    return {
        "debezium-json": of_debezium(debezium.read, debezium_schema.fields, wraps=True, whole=True),
        "debezium-flat-json": of_debezium(debezium_flat.read, debezium_schema.flat_fields, wraps=True),
        "debezium-avro": of_debezium(debezium.read, debezium_schema.fields, whole=True, in_json=debezium_avro.in_json),
        "canal-json": format_of(canal.read, canal_types.fields, many_rows=True, doubts=canal_types.doubts),
        "maxwell-json": format_of(maxwell.read),
        "ogg-json": format_of(golden_gate.read),
        "dms-json": format_of(dms.read),
        "json": Format(plain_rows, tombstones=True),
    }[name]
