"""Type the row events of a table inside tasks: columns typed, keys found, moves of a key told, misfits set apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakecdc.ingest.formats import find_format
from lakecdc.ingest.formats.changes import REJECTED, listed, row_key
from lakecdc.ingest.formats.envelope import MESSAGE
from lakecdc.ingest.formats.messages import HEADERS
from lakecdc.ingest.formats.native.decoder import partitions
from lakecdc.ingest.formats.native.parts import slices
from lakecdc.ingest.formats.survey import ROWS
from lakecdc.ingest.formats.values import find_placeholders, placeholder_shapes
from lakecdc.model.arrow_columns import ArrowColumn
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lakecdc.ingest.envelopes.json_values import Object
    from lakecdc.ingest.formats.envelope_reader import EnvelopeReader, Read
    from lakecdc.ingest.formats.values import Field

#: order key of a tombstone that stands for a delete
PLACED = "placed"
_IS_ROW = ("r", "c", "u")
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Typing:
    """How a table's envelopes become changes.

    :param fields: its columns.
    :param key: names of its key columns.
    :param source_tables: whose events are the table's; None among them for messages that tell no table.
    :param marks: highest order key applied by ``topic/partition``; None if there are none to trust.
    :param source_column: column that takes the source table's name; None for none.
    :param encoded: for columns that schemas of the batch write in different ways: how, by the schema's text.
    """

    fields: tuple[Field, ...]
    key: tuple[str, ...]
    source_tables: frozenset[str | None]
    marks: Mapping[str, str] | None = None
    source_column: str | None = None
    encoded: Mapping[str, Mapping[str, Field]] = field(default_factory=dict)


def type_events(messages: DataFrame, reader: EnvelopeReader, typing: Typing) -> DataFrame:
    """Type a table's row events.

    :param messages: a message frame; one with a column ``placed`` has tombstones alone, which are deletes there.
    :return: the change frame, each row with ``rejected``: null, or the message with rule and reason if it cannot be
        applied. One row per event, two where an update moves the key.
    """
    typed = messages.mapInArrow(_EventTask(reader, typing), _schema(typing))
    has_key = F.lit(bool(typing.key)) & (listed([F.when(F.col("key")[k].isNull(), F.lit(k)) for k in typing.key]) == "")
    key = F.when(has_key, row_key("key", typing.key)).alias("row_key")
    return typed.withColumn("rejected", F.when(F.col("rejected").isNotNull(), F.struct("rejected.*", key)))


def _schema(typing: Typing) -> str:
    types = {f.name: f.type for f in typing.fields}
    # Spark stores no struct without fields
    key = ", ".join(f"{quoted_column(k)}: {types[k]}" for k in typing.key) or "none: string"
    row = ", ".join(f"{quoted_column(f.name)}: {f.type}" for f in typing.fields)
    message = {"partition": "int", "offset": "bigint", "key": "binary", "value": "binary", "headers": HEADERS}
    message |= {"source_time": "timestamp"}
    rejected = ", ".join(f"`{name}`: {message.get(name, 'string')}" for name in REJECTED[:-1])
    return (
        f"op string, key struct<{key}>, row struct<{row}>, open array<string>, old_key struct<{key}>, `order` string, "
        f"source_time timestamp, partition string, late boolean, rejected struct<{rejected}>"
    )


class _EventTask:
    def __init__(self, reader: EnvelopeReader, typing: Typing) -> None:
        self._reader, self._of = reader, typing

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        typed = _EventColumns(self._reader, self._of)
        for batch in batches:
            is_placed = PLACED in batch.schema.names
            for start, rows in slices(batch):
                messages = batch.slice(start, rows)
                reads = [read for read in self._reader.read(messages) if is_placed or self._is_own(read)]
                if reads:
                    yield from typed.convert(messages, reads)

    def _is_own(self, read: Read) -> bool:
        one = read.envelope
        return (one.op in ROWS or one.problem is not None) and one.source_table in self._of.source_tables


class _EventColumns:
    """What makes columns of the change frame of envelopes."""

    def __init__(self, reader: EnvelopeReader, typing: Typing) -> None:
        self._of, self._epoch = typing, reader.reading.epoch
        self._columns = {f.name: ArrowColumn(f.column_type) for f in typing.fields}
        self._encoded = {
            name: {text: ArrowColumn(one.column_type) for text, one in by_schema.items()}
            for name, by_schema in typing.encoded.items()
        }
        self._shapes = frozenset(placeholder_shapes(reader.reading.unavailable_value))
        self._placeholders = find_format(reader.format).placeholders
        self._other_cases = [(k, re.compile(rf'"((?i:{re.escape(k)}))"\s*:')) for k in typing.key]

    def convert(self, messages: pa.RecordBatch, reads: Sequence[Read]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of some envelopes, those of moved keys twice."""
        import pyarrow as pa
        import pyarrow.compute as pc

        placed = messages.column(PLACED).to_pylist() if PLACED in messages.schema.names else None
        ops = ["d" if placed else read.envelope.op for read in reads]
        row, opened, misfits = self._row(reads)
        key, was = self._keys(reads, ops)
        lacking = self._lacking(key)
        rejected = self._judge(messages, reads, ops, misfits, lacking)
        moved = pa.array(
            [why is None and changed for why, changed in zip(rejected, self._moved(key, was, ops), strict=True)]
        )
        linked = self._linked(reads, ops, was, moved)
        orders = self._orders(messages, reads, placed)
        places = partitions(messages).take(pa.array([read.place for read in reads], pa.int64()))
        times = pa.array([read.envelope.place.source_time for read in reads], pa.timestamp("us", "UTC"))
        columns = {
            "op": pa.array(ops, pa.string()),
            "key": key,
            "row": _struct(row, self._of.fields, [op in _IS_ROW for op in ops]),
            "open": opened,
            "old_key": linked,
            "order": pa.array(orders, pa.string()),
            "source_time": times,
            "partition": places,
            "late": self._late(places, orders),
            "rejected": self._rejected(messages, reads, rejected, orders, times),
        }
        events = pa.RecordBatch.from_pydict(columns)
        if pc.any(moved).as_py():
            gone = dict(columns)
            count = len(ops)
            gone |= {"op": pa.array(["d"] * count, pa.string()), "key": was}
            gone |= {name: pa.nulls(count, columns[name].type) for name in ("row", "open", "old_key")}
            yield pa.RecordBatch.from_pydict(gone).filter(moved)
        yield events

    def _row(self, reads: Sequence[Read]) -> tuple[list[pa.Array], pa.Array, dict[int, list[str]]]:
        """Return the columns of the row, which of them stand for "unchanged", and which do not fit, by place."""
        import pyarrow as pa

        images = [read.envelope.after for read in reads]
        columns = []
        open_: dict[int, list[str]] = {}
        misfits: dict[int, list[str]] = {}
        for one in self._of.fields:
            column, misfit = self._convert(one.name, reads, images)
            columns.append(column)
            placeholders: list[int] = []
            if self._placeholders and one.is_large and one.name != self._of.source_column:
                placeholders = find_placeholders([(i or _NOTHING).get(one.name) for i in images], self._shapes)
            for place in placeholders:
                open_.setdefault(place, []).append(one.name)
            # a decimal's placeholder is not a decimal
            for place in sorted({*misfit}.difference(placeholders)):
                misfits.setdefault(place, []).append(f"{one.name} ({one.type})")
        opened = pa.array([open_.get(place) for place in range(len(reads))], pa.list_(pa.string()))
        return columns, opened, misfits

    def _convert(self, name: str, reads: Sequence[Read], images: Sequence[Object | None]) -> tuple[pa.Array, list[int]]:
        """Return a column of row images, and the places of values that do not fit."""
        import pyarrow as pa

        if name == self._of.source_column:
            return pa.array([read.envelope.source_table for read in reads], pa.string()), []
        values = [(image or _NOTHING).get(name) for image in images]
        by_schema = self._encoded.get(name)
        if not by_schema:
            return self._columns[name].convert(values)
        parts: dict[str | None, list[int]] = {}
        for place, read in enumerate(reads):
            parts.setdefault(read.schema if read.schema in by_schema else None, []).append(place)
        columns, misfits, order = [], [], list[int]()
        for text, places in parts.items():
            column = self._columns[name] if text is None else by_schema[text]
            converted, wrong = column.convert([values[place] for place in places])
            columns.append(converted)
            misfits += [places[number] for number in wrong]
            order += places
        back = sorted(range(len(order)), key=order.__getitem__)
        return pa.chunked_array(columns).combine_chunks().take(pa.array(back, pa.int64())), sorted(misfits)

    def _keys(self, reads: Sequence[Read], ops: Sequence[str | None]) -> tuple[pa.Array, pa.Array]:
        """Return the key of each event, and the one that its row had before an update."""
        import pyarrow as pa
        import pyarrow.compute as pc

        is_delete = pc.equal(_strings(ops), "d").fill_null(False)
        # a delete's row before may be invented except for the key, and absent except for the record's key
        own_images = [
            read.envelope.before if op == "d" else read.envelope.after for read, op in zip(reads, ops, strict=True)
        ]
        before_images = [read.envelope.before for read in reads]
        records: list[Object | None] | None = None
        own, was = [], []
        for name in self._of.key:
            column, _ = self._convert(name, reads, own_images)
            before, _ = self._convert(name, reads, before_images)
            new = pc.if_else(is_delete, pa.scalar(None, column.type), column)
            if column.null_count:
                if records is None:
                    records = [None if r.envelope.keys is None else r.envelope.keys.record_key() for r in reads]
                column = pc.coalesce(column, self._convert(name, reads, records)[0])
            own.append(column)
            was.append(pc.coalesce(before, new))
        return self._key(own, len(reads)), self._key(was, len(reads))

    def _key(self, columns: Sequence[pa.Array], count: int, is_there: pa.Array | None = None) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        mask = None if is_there is None else pc.invert(is_there)
        if not self._of.key:
            return pa.StructArray.from_arrays([pa.nulls(count, pa.string())], ["none"], mask=mask)
        return pa.StructArray.from_arrays(list(columns), list(self._of.key), mask=mask)

    def _lacking(self, key: pa.Array) -> list[list[str]]:
        """Return the key columns without a value of each event."""
        import pyarrow.compute as pc

        lacking: list[list[str]] = [[] for _ in range(len(key))]
        for name, column in zip(self._of.key, key.flatten(), strict=False):
            for place in pc.indices_nonzero(column.is_null()).to_pylist():
                lacking[place].append(name)
        return lacking

    def _moved(self, key: pa.Array, was: pa.Array, ops: Sequence[str | None]) -> list[bool]:
        """Check for updates whose row had another key before."""
        import pyarrow.compute as pc

        moved = pc.equal(_strings(ops), "u").fill_null(False)
        changed = None
        for now, before in zip(key.flatten(), was.flatten(), strict=True) if self._of.key else ():
            moved = pc.and_(moved, before.is_valid())
            differs = pc.not_equal(now, before).fill_null(False)
            changed = differs if changed is None else pc.or_(changed, differs)
        found: list[bool] = [False] * len(ops) if changed is None else pc.and_(moved, changed).to_pylist()
        return found

    def _linked(self, reads: Sequence[Read], ops: Sequence[str | None], was: pa.Array, moved: pa.Array) -> pa.Array:
        """Return the key that a row had before, where the message tells it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keys = [None if op == "d" else read.envelope.keys for read, op in zip(reads, ops, strict=True)]
        images = [keys_.old_key() if keys_ is not None and keys_.old is not None else None for keys_ in keys]
        there = pa.array([image is not None for image in images])
        columns = []
        for name, before in zip(self._of.key, was.flatten(), strict=False):
            column, _ = self._convert(name, reads, images)
            columns.append(pc.if_else(there, column, before))
        return self._key(columns, len(reads), pc.or_(there, moved))

    def _judge(
        self,
        messages: pa.RecordBatch,
        reads: Sequence[Read],
        ops: Sequence[str | None],
        misfits: Mapping[int, list[str]],
        lacking: Sequence[list[str]],
    ) -> list[tuple[str, str] | None]:
        """Return why events cannot be applied, as rule and reason."""
        found: list[tuple[str, str] | None] = []
        for place, (read, op) in enumerate(zip(reads, ops, strict=True)):
            if read.envelope.problem is not None:
                found.append(read.envelope.problem)
            elif op in _IS_ROW and place in misfits:
                found.append(("type", f"values do not fit their columns: {', '.join(misfits[place])}"))
            elif lacking[place]:
                names = ", ".join(lacking[place])
                reason = f"no value for the key columns {names}{self._of_another_case(messages, read.place)}"
                found.append(("no-key", reason))
            else:
                found.append(None)
        return found

    def _of_another_case(self, messages: pa.RecordBatch, place: int) -> str:
        """Return what to add about names in a message that differ from those of key columns in case alone."""
        parts = [messages.column(name)[place].as_py() for name in ("key", "value")]
        text = " ".join(part.decode(errors="replace") for part in parts if part is not None)
        matches = [(name, pattern.search(text)) for name, pattern in self._other_cases]
        others = [match[1] for name, match in matches if match and match[1] != name]
        return f"; it has {', '.join(others)}, and case counts" if others else ""

    def _orders(self, messages: pa.RecordBatch, reads: Sequence[Read], placed: Sequence[str] | None) -> list[str]:
        if placed is not None:
            return [placed[read.place] for read in reads]
        arrivals = messages.column("arrival").to_pylist()
        return [read.envelope.place.order(self._epoch, arrivals[read.place]) for read in reads]

    def _late(self, places: pa.Array, orders: Sequence[str]) -> pa.Array:
        import pyarrow as pa

        marks = self._of.marks
        if marks is None:
            return pa.nulls(len(orders), pa.bool_())
        found = [marks.get(place) for place in places.to_pylist()]
        late = [mark is None or order <= mark for mark, order in zip(found, orders, strict=True)]
        return pa.array(late, pa.bool_())

    def _rejected(
        self,
        messages: pa.RecordBatch,
        reads: Sequence[Read],
        rejected: Sequence[tuple[str, str] | None],
        orders: Sequence[str],
        times: pa.Array,
    ) -> pa.Array:
        import pyarrow as pa

        # of what is applied all are null
        chosen = [read.place if why else None for read, why in zip(reads, rejected, strict=True)]
        places = pa.array(chosen, pa.int64())
        own = {
            "rule": _strings([why and why[0] for why in rejected]),
            "reason": _strings([why and why[1] for why in rejected]),
            **{name: messages.column(name).take(places) for name in MESSAGE},
            "source_table": _strings([read.envelope.source_table for read in reads]),
            "order": _strings(orders),
            "source_time": times,
        }
        mask = pa.array([why is None for why in rejected], pa.bool_())
        return pa.StructArray.from_arrays([own[name] for name in REJECTED[:-1]], list(REJECTED[:-1]), mask=mask)


def _strings(values: Sequence[str | None]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, pa.string())


def _struct(columns: Sequence[pa.Array], fields: Sequence[Field], is_there: Sequence[bool]) -> pa.Array:
    import pyarrow as pa

    mask = pa.array([not there for there in is_there], pa.bool_())
    return pa.StructArray.from_arrays(list(columns), [f.name for f in fields], mask=mask)
