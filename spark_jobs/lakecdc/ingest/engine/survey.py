"""Measure the messages of a batch in one pass: which tables, which columns, how far the source got."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from lakecdc.iceberg.widening import common
from lakecdc.ingest.formats.message_columns import partitions
from lakecdc.ingest.formats.values import Field, json_type, merge_fields
from lakecdc.model.order import Stretch, highest, is_change, joined, moment, rises

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lakecdc.ingest.engine.envelope_reader import EnvelopeReader
    from lakecdc.ingest.formats.envelope import Read

#: ops of row events
ROWS = ("r", "c", "u", "d")
# 16384 offsets are looked at together
_STRETCH_BITS = 14
# columns by name, and their Spark SQL types
_Types = dict[str, str]


@dataclass(frozen=True)
class Survey:
    """What is known of the messages of one source table.

    :param source_table: ``schema.table`` or ``database.table``; None if the format does not tell.
    :param fields: columns of the row images, from the format's schema where it has one, else from the JSON values.
    :param events: row events.
    :param problems: messages that cannot be read.
    :param tombstones: messages without a value.
    :param truncate_order: order key of the last TRUNCATE; None if there is none.
    :param newest: source time of the newest event.
    :param high_orders: highest order key by ``topic/partition``.
    :param stretches: of its changes, by ``topic/partition``.
    :param topics: topics of the messages, tombstones included.
    :param key: members of the messages' keys.
    :param key_names: names of the key's columns as messages themselves tell them, each list once.
    :param told: all columns of the source, as the last schema has them; empty without schemas.
    :param schemas: columns by the text of each schema of the batch, where the format has schemas.
    """

    source_table: str | None
    fields: tuple[Field, ...]
    events: int
    problems: int
    tombstones: int
    truncate_order: str | None
    newest: datetime | None
    high_orders: dict[str, str]
    topics: frozenset[str] = frozenset()
    key: tuple[Field, ...] = ()
    schemas: Mapping[str, tuple[Field, ...]] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    key_names: frozenset[tuple[str, ...]] = frozenset()
    stretches: Mapping[str, Sequence[Stretch]] = field(default_factory=dict)


class _Stretch(msgspec.Struct):
    """Rising changes of some offsets: order keys of the first one, the newest one and the highest one."""

    first: str
    newest: str
    high: str
    moment: tuple[int, int]


class _Part(msgspec.Struct):
    """What a task has seen of one source table; see :class:`Survey`.

    :param after: types of the members of row images that no schema tells.
    :param before: the same of images of rows that are gone.
    :param schemas: texts of schemas, and the highest order key with each.
    """

    source_table: str | None
    after: _Types = {}
    before: _Types = {}
    key: _Types = {}
    schemas: dict[str, str] = {}
    key_names: set[tuple[str, ...]] = set()
    events: int = 0
    problems: int = 0
    tombstones: int = 0
    truncate_order: str | None = None
    newest: int | None = None
    high_orders: dict[str, str] = {}
    topics: set[str] = set()
    stretches: dict[str, list[_Stretch]] = {}


_PARTS = msgspec.msgpack.Decoder(list[_Part])


def survey(messages: DataFrame, reader: EnvelopeReader, *, keys: bool = False) -> list[Survey]:
    """Measure a message frame in one pass, by source table.

    :param keys: whether the members of the messages' keys are wanted.
    """
    rows = messages.mapInArrow(_SurveyTask(reader, keys), "parts binary").collect()
    parts = [part for row in rows for part in _PARTS.decode(row["parts"])]
    tables = sorted({part.source_table for part in parts}, key=str)
    return [_merged(name, [p for p in parts if p.source_table == name], reader) for name in tables]


class _SurveyTask:
    def __init__(self, reader: EnvelopeReader, keys: bool) -> None:
        self._reader, self._keys = reader, keys

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        parts: dict[str | None, _Part] = {}
        stretches: dict[tuple[str | None, str, int], _Stretch] = {}
        for messages in batches:
            places = partitions(messages).to_pylist()
            offsets, arrivals = (messages.column(name).to_pylist() for name in ("offset", "arrival"))
            for read in self._reader.read(messages):
                table, at = read.envelope.source_table, places[read.place]
                part = parts.setdefault(table, _Part(table))
                order = read.envelope.place.order(self._reader.reading.epoch, arrivals[read.place])
                self._count(part, read, order, at)
                offset = offsets[read.place]
                if read.envelope.op in ROWS and offset is not None and is_change(order) and rises(order):
                    stretch = table, at, offset >> _STRETCH_BITS
                    stretches[stretch] = _add(stretches.get(stretch), read.envelope.place.source_time, order, offset)
        for (table, at, _), one in stretches.items():
            parts[table].stretches.setdefault(at, []).append(one)
        yield pa.RecordBatch.from_pydict({"parts": [msgspec.msgpack.encode(list(parts.values()))]})

    def _count(self, part: _Part, read: Read, order: str, at: str) -> None:
        one = read.envelope
        is_row = one.op in ROWS
        part.events += is_row or one.op == "t"
        part.problems += one.problem is not None
        part.tombstones += one.op == "x"
        if "/" in at:
            part.topics.add(at.rpartition("/")[0])
        if one.op == "t":
            part.truncate_order = max(order, part.truncate_order or "")
        if is_row:
            part.high_orders[at] = max(order, part.high_orders.get(at, ""))
        time = one.place.source_time
        if time is not None:
            part.newest = time if part.newest is None else max(time, part.newest)
        if self._keys:
            self._see_key(part, read)
        if one.problem is not None:
            return
        if read.schema is not None:
            part.schemas[read.schema] = max(order, part.schemas.get(read.schema, ""))
        if read.schema is None or not self._reader.columns_of(read.schema):
            if one.after is not None:
                _see(part.after, one.after)
            elif one.before is not None:
                _see(part.before, one.before)

    def _see_key(self, part: _Part, read: Read) -> None:
        keys = read.envelope.keys
        if keys is not None and self._reader.has_row_keys:
            _see(part.key, keys.record_key() or {})
        if read.envelope.op in ROWS and read.envelope.key_names:
            part.key_names.add(read.envelope.key_names)


def _add(known: _Stretch | None, micros: int | None, order: str, offset: int) -> _Stretch:
    """Add a change to a stretch; of those with the newest source time the first one counts."""
    # without a time it is older than all others
    moment = (-(2**63) if micros is None else micros // 1000, -offset)
    if known is None:
        return _Stretch(order, order, order, moment)
    known.first, known.high = min(order, known.first), max(order, known.high)
    if moment > known.moment:
        known.newest, known.moment = order, moment
    return known


def _see(types: _Types, image: Mapping[str, Any]) -> None:
    """Note the types of an object's members; a column of nulls comes with its first value."""
    for name, value in image.items():
        if value is None:
            continue
        seen, known = json_type(value), types.get(name)
        if seen != known:
            types[name] = seen if known is None else common(known, seen)


def _merged(name: str | None, parts: list[_Part], reader: EnvelopeReader) -> Survey:
    last = highest(pair for part in parts for pair in part.schemas.items())
    schemas = {text: reader.columns_of(text) for text in sorted(last)}
    told = [schemas[text] for text in sorted(last, key=lambda text: last[text]) if schemas[text]]
    seen = _fields(part.after for part in parts) or _fields(part.before for part in parts)
    newest = max((part.newest for part in parts if part.newest is not None), default=None)
    return Survey(
        name,
        # those of the last schema first; types hold the values of all
        merge_fields((told[-1], *schemas.values(), seen)) if told else seen,
        sum(part.events for part in parts),
        sum(part.problems for part in parts),
        sum(part.tombstones for part in parts),
        max((part.truncate_order for part in parts if part.truncate_order), default=None),
        None if newest is None else moment(newest),
        highest(pair for part in parts for pair in part.high_orders.items()),
        frozenset(topic for part in parts for topic in part.topics),
        _fields(part.key for part in parts),
        schemas,
        tuple(f.name for f in told[-1]) if told else (),
        frozenset(names for part in parts for names in part.key_names),
        joined({at: [(s.first, s.newest, s.high) for s in found] for at, found in p.stretches.items()} for p in parts),
    )


def _fields(types: Iterable[_Types]) -> tuple[Field, ...]:
    found = merge_fields(tuple(Field(name, kind) for name, kind in one.items()) for one in types)
    return tuple(sorted(found, key=lambda f: f.name))
