"""The formats that the native engine reads, declared by name: every one tells its envelopes in SQL of DuckDB."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakecdc.ingest.formats.native.envelopes.envelope import Envelope

_MODULES = {
    "debezium-json": "debezium_json",
    "debezium-avro": "debezium_json",
    "debezium-flat-json": "debezium_flat_json",
    "canal-json": "canal_json",
    "maxwell-json": "maxwell_json",
    "ogg-json": "ogg_json",
    "dms-json": "dms_json",
    "json": "plain_json",
}


def is_read(name: str) -> bool:
    """Tell whether the engine reads a format."""
    return name in _MODULES


def find_envelope(name: str, order_by: str | None = None, *, only_added: bool = False) -> Envelope:
    """How a format's messages are read.

    :param name: as specs give it.
    :param order_by: the member of the row that tells the order, where the format leaves that to the source's settings.
    :param only_added: rows of a format that tells no kind of change are added.
    """
    found: Envelope = import_module(f"{__name__}.{_MODULES[name]}").ENVELOPE
    if only_added and found.kind_of_added:
        found = replace(found, kind=found.kind_of_added)
    return found.ordered_by(found, order_by) if order_by and found.ordered_by else found
