"""Separate the payloads of messages from the schemas beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from lakecdc.ingest.envelopes.json_values import try_parse_json

if TYPE_CHECKING:
    from lakecdc.ingest.formats.envelope import Reading

_MOST_SCHEMAS = 64
# most bytes of a message around its schema and payload, white space included
_MOST_AROUND = 32


@dataclass(frozen=True)
class Payloads:
    """Messages in JSON, without schemas.

    :param messages: the messages, with keys in JSON.
    :param values: the payloads; null for tombstones and unreadable messages.
    :param schemas: text of each payload's schema; None without one.
    :param problems: ``rule: reason`` of unreadable messages.
    """

    messages: pa.RecordBatch
    values: pa.Array
    schemas: Sequence[bytes | None]
    problems: Sequence[str | None]


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    schema: msgspec.Raw
    payload: msgspec.Raw


_WRAPPED = msgspec.json.Decoder(_Wrapped)


def as_they_are(messages: pa.RecordBatch, reading: Reading) -> Payloads:
    """Return the values of messages that have no schemas."""
    nothing = [None] * len(messages)
    return Payloads(messages, messages.column("value"), nothing, nothing)


def unwrapped(messages: pa.RecordBatch, reading: Reading) -> Payloads:
    """Return the payloads of Kafka Connect's JSON; a value without a schema is unchanged."""
    values, schemas = [], list[bytes | None]()
    for value in messages.column("value").cast(pa.binary()).to_pylist():
        parts = None if value is None else unwrap(value)
        schema, payload = (None, value) if parts is None or not _is_object(parts[0]) else parts
        values.append(payload)
        schemas.append(schema)
    return Payloads(messages, pa.array(values, pa.binary()), schemas, [None] * len(messages))


def unwrap(value: bytes) -> tuple[bytes, bytes] | None:
    """Return the schema and the payload of a message; None unless it has both."""
    try:
        wrapped = _WRAPPED.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    schema, payload = bytes(wrapped.schema), bytes(wrapped.payload)
    # anything more is a duplicate member
    return (schema, payload) if len(value.strip()) <= len(schema) + len(payload) + _MOST_AROUND else None


@lru_cache(_MOST_SCHEMAS)
def _is_object(schema: bytes) -> bool:
    return isinstance(try_parse_json(schema), dict)
