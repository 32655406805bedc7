"""The columns of a new table, from its first messages: as the survey of a batch finds them, without a job of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from lakecdc.ingest.envelopes import find_rows, read_message
from lakecdc.ingest.envelopes.message import Envelope, Message
from lakecdc.ingest.formats import canal_types, debezium_schema
from lakecdc.ingest.formats.debezium_schema import NO_SCHEMA
from lakecdc.ingest.formats.values import Field, json_type, merge_fields

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = ("r", "c", "u", "d")
#: columns out of what an envelope has as its schema
_SCHEMAS: dict[str, Callable[[Any], tuple[Field, ...]]] = {
    "debezium-json": lambda schema: debezium_schema.fields(json.dumps(schema)),
    "canal-json": canal_types.columns,
}


class _UntoldError(Exception):
    """Messages that do not tell the columns of a table."""


def fields(
    tables: Iterable[pa.Table], count: int, format_name: str, wants: Callable[[str], bool], *, shards: bool
) -> tuple[Field, ...] | None:
    """Find the columns of the row images of some messages.

    :param tables: messages with their ``value``.
    :param count: messages to look at.
    :param wants: whether a source table is wanted.
    :param shards: it may be several.
    :return: None if they do not tell the columns of such a table.
    """
    seen: dict[str, list[tuple[Field, ...]]] = {}
    try:
        for envelope in _envelopes(islice(_values(tables), count), format_name):
            name = envelope.source_table or ""
            if name and not wants(name):
                continue
            columns = _columns(envelope, format_name)
            if envelope.schema is not None and format_name == "debezium-json":
                # those behind it have the same
                return _named(columns)
            seen.setdefault(name, []).append(columns)
    except (_UntoldError, *NO_SCHEMA):
        return None
    if not seen or (len([name for name in seen if name]) > 1 and not shards):
        return None
    of_tables = [merge_fields(seen[name]) for name in sorted(seen)]
    return _named(merge_fields(tuple(sorted(found, key=lambda f: f.name)) for found in of_tables))


def first_told(values: Iterable[bytes | None], format_name: str, wants: Callable[[str], bool]) -> tuple[Field, ...]:
    """Find the columns that the first row event of a table tells; none if none of the messages does.

    :param wants: whether a source table is wanted.
    """
    for value in values:
        try:
            for envelope in _envelopes([value], format_name):
                if not envelope.source_table or wants(envelope.source_table):
                    return _columns(envelope, format_name)
        except (_UntoldError, *NO_SCHEMA):
            continue
    return ()


def _envelopes(values: Iterable[bytes | None], format_name: str) -> Iterator[Envelope]:
    """Yield the envelopes of row events; messages that cannot be read tell no columns."""
    rows = find_rows(format_name)
    for value in values:
        for envelope in read_message(rows, Message(value)) if value is not None else ():
            if envelope.op in _ROWS:
                yield envelope


def _columns(envelope: Envelope, format_name: str) -> tuple[Field, ...]:
    if envelope.schema:
        if format_name not in _SCHEMAS:
            raise _UntoldError
        return _SCHEMAS[format_name](envelope.schema)
    image = envelope.after or {}
    return tuple(Field(name, json_type(value)) for name, value in image.items() if value is not None)


def _named(found: tuple[Field, ...]) -> tuple[Field, ...] | None:
    """Return columns whose names can be those of columns; None if some cannot."""
    return None if any(not f.name or "\0" in f.name for f in found) else found


def _values(tables: Iterable[pa.Table]) -> Iterator[bytes | None]:
    import pyarrow as pa

    for table in tables:
        for batch in table.select(["value"]).to_batches(max_chunksize=1024):
            # what is not UTF-8 is found out there
            yield from batch.column(0).cast(pa.binary()).to_pylist()
