"""The columns of a new table, from its first messages: as the JVM's survey finds them, without its start."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from lakecdc.ingest.formats import debezium_schema
from lakecdc.ingest.formats.debezium_schema import NO_SCHEMA
from lakecdc.ingest.formats.native.envelopes.envelope import dotted
from lakecdc.ingest.formats.survey import merge_fields

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.ingest.formats.native.envelopes.envelope import Envelope
    from lakecdc.ingest.formats.values import Field


def fields(
    tables: Iterable[pa.Table], count: int, read: Envelope, wants: Callable[[str], bool], *, shards: bool
) -> tuple[Field, ...] | None:
    """Columns of the row images of some messages.

    :param tables: messages with their ``value``.
    :param count: messages to look at.
    :param read: their format.
    :param wants: tells whether a source table is wanted.
    :param shards: it may be several.
    :return: None if they are not all plain row events of such tables.
    """
    seen: dict[str | None, list[tuple[Field, ...]]] = {}
    try:
        for event in islice(_events(tables), count):
            told = _of_schema(event) if read.schemas else None
            if told and wants(told[0]):
                return _named(told[1])
            for name, found in read.sample(event) if told is None else ():
                if not name or wants(name):
                    seen.setdefault(name or None, []).append(found)
    except NO_SCHEMA:
        return None
    if not seen or len([name for name in seen if name]) > 1 and not shards:
        return None
    of_tables = [merge_fields(seen[name]) for name in sorted(seen, key=str)]
    return _named(merge_fields(tuple(sorted(found, key=lambda f: f.name)) for found in of_tables))


def _named(found: tuple[Field, ...]) -> tuple[Field, ...] | None:
    """Columns whose names can be those of columns; None if some cannot."""
    return None if any(not f.name or "\0" in f.name for f in found) else found


def first_told(values: Iterable[str | bytes | None], read: Envelope, wants: Callable[[str], bool]) -> tuple[Field, ...]:
    """Columns that the first row event of a table tells; none if none of the messages does.

    :param wants: tells whether a source table is wanted.
    """
    for value in values:
        try:
            for name, found in read.sample(json.loads(value)) if value else ():
                if not name or wants(name):
                    return found
        except NO_SCHEMA:
            continue
    return ()


def _of_schema(event: dict[str, Any]) -> tuple[str, tuple[Field, ...]] | None:
    """Source table and columns of a row event's schema, which those behind it have as well; None if it has none."""
    schema, payload = event.get("schema"), event.get("payload")
    if not isinstance(schema, dict) or not isinstance(payload, dict) or payload.get("op") not in ("r", "c", "u", "d"):
        return None
    source = payload["source"]
    name = dotted(source.get("schema") or source.get("db"), source["table"])
    return name, debezium_schema.fields(json.dumps(schema))


def _events(tables: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
    for table in tables:
        for batch in table.to_batches(max_chunksize=1024):
            yield from (json.loads(value) for value in batch.column("value").to_pylist() if value is not None)
