"""The formats of change events, declared by name: every one turns messages into envelopes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakecdc.ingest.formats.envelope import Format

_MODULES = {
    "debezium-json": "debezium_json",
    "debezium-flat-json": "debezium_flat_json",
    "debezium-avro": "debezium_avro",
    "canal-json": "canal_json",
    "maxwell-json": "maxwell_json",
    "ogg-json": "ogg_json",
    "dms-json": "dms_json",
    "json": "plain_json",
}


def find_format(name: str) -> Format:
    """A format by the name that specs give it."""
    found: Format = import_module(f"{__name__}.{_MODULES[name]}").FORMAT
    return found
