"""Read the schemas in messages, and check whether a table can be decoded with them.

All messages of a table have the same schema, unless its columns change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from lakecdc.iceberg.widening import holds
from lakecdc.ingest.envelopes import debezium
from lakecdc.ingest.envelopes.json_values import parse_each, try_parse_json
from lakecdc.ingest.envelopes.message import Message, read_message
from lakecdc.ingest.formats import find_format
from lakecdc.ingest.formats.debezium_schema import NO_SCHEMA
from lakecdc.ingest.formats.payloads import Payloads, as_they_are
from lakecdc.ingest.formats.values import Field
from lakecdc.model.tokens import to_text

if TYPE_CHECKING:
    from lakecdc.ingest.engine.decoding import Decoding
    from lakecdc.ingest.envelopes.message import Envelope

#: why messages are set aside
OTHER_SCHEMA, OTHER_TYPES = "a message of another schema", "other types"
#: number of messages searched for the first one of the table
LOOKED_AT = 1000
_TOGETHER = 20
_MOST_SCHEMAS = 64


class SchemaError(Exception):
    """This engine cannot decode the columns of a schema."""


class SchemaCheck:
    """Compare the schemas of messages with the expected schema."""

    def __init__(self, decoding: Decoding) -> None:
        self._of = decoding
        self._known = decoding.known_names
        # there are few distinct schemas
        self._is_expected = lru_cache(_MOST_SCHEMAS)(lambda text: fields_of(text, decoding.format) == decoding.schema)
        self._judge_types = lru_cache(_MOST_SCHEMAS)(self._compare_types)

    def payloads(self, messages: pa.RecordBatch) -> tuple[Payloads, list[bool] | None]:
        """Return the payloads of messages, and which of them have the expected schema; None if none is expected."""
        of = self._of
        if of.schema is None and of.reading.schemas is None:
            return as_they_are(messages, of.reading), None
        payloads = of.traits.payloads(messages, of.reading)
        return payloads, [text is not None and self._is_expected(text) for text in payloads.schemas]

    def judge(self, envelope: Envelope) -> str | None:
        """Return why an event with its own schema is set aside, or None."""
        if not isinstance(envelope.schema, dict):
            return None
        if not self._of.traits.many_rows:
            return OTHER_SCHEMA
        types = tuple(envelope.schema.items())
        try:
            return self._judge_types(types)
        except TypeError:
            # types other than text have no hash
            return self._compare_types(types)

    def _compare_types(self, types: tuple[tuple[str, Any], ...]) -> str | None:
        """Return why the table's columns cannot store a message's types, given by column."""
        read, text, fixed = self._of.traits, to_text(dict(types)), self._of.target.columns
        if not {name for name, _ in types} <= self._known:
            return "other columns"
        fields = read.columns_of(text)
        if not fields or read.doubted_of(text, fixed) is not None:
            return OTHER_TYPES
        fits = outgrown(self._of.fields, fields, fixed) is None
        return None if fits and named_alike(self._of.fields, fields) else OTHER_TYPES


def first_schema(messages: pa.RecordBatch, decoding: Decoding) -> tuple[Field, ...] | None:
    """Return the schema's columns of the table's first message, among the first ones of a task."""
    if not decoding.traits.has_schemas or decoding.schema is not None:
        return None
    first = next(_own_events(messages, decoding), None)
    return None if first is None else fields_of(first[0], decoding.format)


def first_types(messages: pa.RecordBatch, decoding: Decoding) -> tuple[Field, ...]:
    """Return the typed columns of the table's first row event, among the first messages of a task."""
    for _, envelope in _own_events(messages, decoding):
        if envelope.op in debezium.ROW_OPS:
            return decoding.traits.columns_of(to_text(envelope.schema))
    return ()


def _own_events(messages: pa.RecordBatch, decoding: Decoding) -> Iterator[tuple[bytes, Envelope]]:
    """Yield the first events of the table, each with its message's schema.

    Messages that lack a required schema are left out.
    """
    own, reading = decoding.traits, decoding.reading
    rows = own.rows(reading)
    for start in range(0, min(LOOKED_AT, len(messages)), _TOGETHER):
        payloads = own.payloads(messages.slice(start, _TOGETHER), reading)
        there = payloads.values.is_valid().to_pylist()
        for is_there, value, schema in zip(there, parse_each(payloads.values), payloads.schemas, strict=True):
            is_read = is_there and (schema is not None or not own.has_schemas)
            for envelope in read_message(rows, Message(b""), value) if is_read else ():
                if envelope.op and (not envelope.source_table or decoding.is_own(envelope.source_table)):
                    yield schema or b"", envelope


def fields_of(schema: bytes, format_name: str) -> tuple[Field, ...] | None:
    """Return the columns of a schema in Kafka Connect's notation; None if it is not one."""
    document = try_parse_json(schema)
    if not isinstance(document, dict):
        return None
    try:
        return find_format(format_name).fields(schema.decode())
    except NO_SCHEMA:
        return None


def to_json(fields: tuple[Field, ...]) -> str:
    return msgspec.json.encode(fields).decode()


def from_json(text: str) -> tuple[Field, ...]:
    return msgspec.json.decode(text, type=tuple[Field, ...])


def outgrown(columns: Iterable[Field], schema: Iterable[Field], fixed: Collection[str]) -> str | None:
    """Return a column of the table that cannot store a schema's type, or None.

    :param fixed: columns whose types the target declares.
    """
    types = {f.name: f.type for f in schema if f.name not in fixed}
    return next((c.name for c in columns if c.name in types and not holds(c.type, types[c.name])), None)


def named_alike(columns: Iterable[Field], schema: Iterable[Field]) -> bool:
    """Check that the columns have the names of values in a schema."""
    known = {c.name: c for c in columns}
    return all(known[f.name].names == f.with_type(known[f.name].type).names for f in schema if f.name in known)
