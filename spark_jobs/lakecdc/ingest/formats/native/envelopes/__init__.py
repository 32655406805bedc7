"""The formats that the native engine reads, declared by name: every one tells its envelopes in SQL of DuckDB."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakecdc.ingest.formats.native.envelopes.envelope import Envelope

_MODULES = {"debezium-json": "debezium_json"}


def is_read(name: str) -> bool:
    """Tell whether the engine reads a format."""
    return name in _MODULES


def find_envelope(name: str) -> Envelope:
    """How a format's messages are read, by the name that specs give it."""
    found: Envelope = import_module(f"{__name__}.{_MODULES[name]}").ENVELOPE
    return found
