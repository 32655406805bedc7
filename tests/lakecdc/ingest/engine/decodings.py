"""Decodings of tests."""

from __future__ import annotations

from typing import Any

from lakecdc.contract.target import Target
from lakecdc.ingest.engine.decoding import Decoding
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.values import Field


def decoding_of(
    fields: tuple[Field, ...],
    name: str = "debezium-json",
    target: Target | None = None,
    *,
    order_by: str | None = None,
    unavailable_value: str = "__gone",
    keyed: bool = False,
    **more: Any,
) -> Decoding:
    """Return the decoding of a table ``t`` with the key ``id``.

    :param name: of the format.
    """
    target = target or Target("test.t", key=("id",), source_table="t")
    reading = Reading(1, unavailable_value, order_by)
    return Decoding(fields, ("id",), name, target, reading, keyed=keyed, **more)
