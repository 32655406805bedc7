"""Decode the cells of records to changes: tasks type the columns, find order and key, and reject misfits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.ingest.change import Column, Rows, alike
from lakecdc.ingest.engine import packing
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.engine.fold import can_fold, grouping
from lakecdc.ingest.engine.layout import COUNTS, ORDER_PARTS, Numbers, decoded_schema, places_back, rejected_column
from lakecdc.ingest.engine.packed import PackedLayout, gathered
from lakecdc.ingest.engine.table_fields import chosen_type
from lakecdc.ingest.engine.tasks import Buffering, buffered
from lakecdc.ingest.formats.rows.cells import Cells, prepared, stored_type
from lakecdc.ingest.formats.text_columns import misfits_by_row, null_places
from lakecdc.model.arrow_columns import ArrowColumn
from lakecdc.model.columns import INTEGER_BYTES, ColumnType, arrow_type
from lakecdc.model.order import RANK_CHANGE
from lakecdc.runtime.worker import settle
from lakecdc.sql import quoted_column, sql_type

_SIGN = 1 << 63
_LOWEST = -_SIGN


@dataclass(frozen=True)
class RowReading:
    """Options of a source for reading its rows.

    :param epoch: number of the source's identity, 0 to 65535.
    :param order_by: column that increases with every change of a row; None to order by arrival.
    :param times: ``order_by`` is the source's time of the row's last change.
    :param timestamp_format: format of times in text.
    :param zone: zone of times without a zone in ``order_by``.
    :param lowest_without: order a row without a value there below all others, instead of rejecting it.
    """

    epoch: int
    order_by: str | None = None
    times: bool = False
    timestamp_format: str | None = None
    zone: str = "UTC"
    lowest_without: bool = False


@dataclass(frozen=True)
class RecordLayout:
    """Columns of records, and their conversion.

    A batch of records has the columns ``cells``, a struct; ``c0`` … for cells that Spark has prepared; ``problem``, why
    a record cannot be read (``rule: reason``) or null; and the columns of a message.

    :param places: places of the columns' cells.
    :param texts: names of columns parsed from texts.
    :param carried: message columns of rejected records.
    """

    columns: tuple[Column, ...]
    places: tuple[int, ...]
    texts: frozenset[str]
    key: tuple[str, ...]
    op: str
    carried: tuple[str, ...]
    reading: RowReading

    def typed(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return records as events in the engine's layout, with the columns of its checks."""
        values, misfits = self._values(records)
        count = len(records)
        positions, times = self._moments(values)
        kinds = {name: column.type for name, column in values.items()}
        message = pa.struct([records.schema.field(name).with_nullable(True) for name in self.carried])
        schema = decoded_schema(kinds, self.key, message)
        columns = {
            "op": pa.repeat(self.op, count),
            **{f"k{i}": values[name] for i, name in enumerate(self.key)},
            **{f"c{i}": column for i, column in enumerate(values.values())},
            **{name: pa.array(part, schema.field(name).type) for name, part in self._order(positions, records).items()},
            "moved": pa.repeat(False, count),
            "time_us": times,
            "partition": pa.repeat("records", count),
            **{name: pa.repeat(pa.scalar(int(name[-1] == self.op), pa.int32()), count) for name in COUNTS},
        }
        reasons = self._reasons(records, values, misfits, positions)
        if reasons:
            columns |= self._rejected(records, reasons, columns, schema)
        arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _values(self, records: pa.RecordBatch) -> tuple[dict[str, pa.Array], dict[int, list[str]]]:
        """Return the columns of the rows, and by row the names of columns whose value does not fit."""
        names, cells = records.schema.names, records.column("cells")
        values: dict[str, pa.Array] = {}
        misfits: list[tuple[str, list[int]]] = []
        for i, (column, place) in enumerate(zip(self.columns, self.places, strict=True)):
            cell = pc.struct_field(cells, [place])
            own = records.column(f"c{i}") if f"c{i}" in names else cell
            if column.name in self.texts:
                values[column.name], wrong = typed_texts(own, column.type)
            else:
                kind = arrow_type(column.type)
                values[column.name] = own if kind is None else own.cast(kind)
                wrong = _lost(cell, own)
            misfits.append((column.name, wrong))
        return values, misfits_by_row(misfits)

    def _moments(self, values: Mapping[str, pa.Array]) -> tuple[pa.Array | None, pa.Array]:
        """Return the position of each row in the order, null without one, and its source time in microseconds."""
        name = self.reading.order_by
        if name is None:
            return None, pa.nulls(len(next(iter(values.values()))), pa.int64())
        positions = instants(values[name], self.reading.zone)
        kind = values[name].type
        is_time = not (pa.types.is_integer(kind) or pa.types.is_decimal(kind))
        times = positions if self.reading.times and is_time else pa.nulls(len(positions), pa.int64())
        return positions.fill_null(_LOWEST) if self.reading.lowest_without else positions, times

    def _order(self, positions: pa.Array | None, records: pa.RecordBatch) -> dict[str, Numbers]:
        count = len(records)
        numbers = np.zeros(count, np.int64) if positions is None else positions.fill_null(0).to_numpy()
        parts: dict[str, Numbers] = dict.fromkeys(("ord", "time_ms"), np.zeros(count, np.int64))
        # with the sign inverted, negative numbers sort below positive ones
        parts["pos"] = numbers.view(np.uint64) ^ np.uint64(_SIGN)
        parts["rank"] = np.full(count, RANK_CHANGE, np.int8)
        parts["arrival"] = records.column("arrival").to_numpy()
        return {name: parts[name] for name in ORDER_PARTS}

    def _reasons(
        self,
        records: pa.RecordBatch,
        values: Mapping[str, pa.Array],
        misfits: Mapping[int, Sequence[str]],
        positions: pa.Array | None,
    ) -> dict[int, tuple[str, str]]:
        lacking = misfits_by_row((name, null_places(values[name])) for name in self.key)
        types = {c.name: c.type for c in self.columns}
        unplaced = [] if positions is None else null_places(positions)
        reasons = dict.fromkeys(unplaced, ("no-order", f"no value in the order column {self.reading.order_by}"))
        for row, names in lacking.items():
            reasons[row] = "no-key", f"no value for the key columns {', '.join(names)}"
        for row, columns in misfits.items():
            listed = ", ".join(f"{name} ({types[name]})" for name in columns)
            reasons[row] = "type", f"values do not fit their columns: {listed}"
        problems = records.column("problem")
        if problems.null_count < len(problems):
            for row, problem in enumerate(problems.to_pylist()):
                if problem is not None:
                    rule, _, reason = problem.partition(": ")
                    reasons[row] = rule, reason
        return reasons

    def _rejected(
        self,
        records: pa.RecordBatch,
        reasons: Mapping[int, tuple[str, str]],
        columns: Mapping[str, pa.Array],
        schema: pa.Schema,
    ) -> dict[str, pa.Array]:
        count, rows, message = len(records), sorted(reasons), schema.field("message").type
        # the cells of a broken record may belong to other columns
        is_whole = records.column("problem").is_null()
        keys = {f"k{i}": columns[f"k{i}"] for i in range(len(self.key))}
        known = {name: pc.if_else(is_whole, key, pa.scalar(None, key.type)) for name, key in keys.items()}
        known["source_table"] = pa.nulls(count, pa.string())
        kind = schema.field("rejected").type
        rejected = rejected_column(reasons, {**columns, **known}, kind, self.reading.epoch)
        carried = [records.column(name).take(pa.array(rows, pa.int64())) for name in self.carried]
        messages = pa.StructArray.from_arrays(carried, fields=list(message))
        return {"rejected": rejected, "message": messages.take(places_back(rows, count))}


def _lost(cells: pa.Array, values: pa.Array) -> list[int]:
    """Return the places of cells whose value was lost; blanks do not count."""
    if values.null_count == cells.null_count:
        return []
    if pa.types.is_string(cells.type):
        cells = _without_blanks(cells)
    return pc.indices_nonzero(pc.and_(cells.is_valid(), values.is_null())).to_pylist()


def typed_texts(texts: pa.Array, sql_type: str) -> tuple[pa.Array, list[int]]:
    """Return the values of texts in a type, and the places of those that do not fit; an empty text is null."""
    return ArrowColumn(ColumnType(sql_type)).convert(_without_blanks(texts).to_pylist())


def _without_blanks(texts: pa.Array) -> pa.Array:
    """Return texts without the blanks around them; empty ones are null."""
    trimmed = pc.utf8_trim(texts, " ")
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)


def instants(values: pa.Array, zone: str) -> pa.Array:
    """Return integers, or times as microseconds since 1970; times without a zone are in ``zone``.

    Values beyond 64 bits are null.
    """
    kind = values.type
    if pa.types.is_decimal(kind):
        inside = pc.and_(pc.greater_equal(values, _LOWEST), pc.less_equal(values, _SIGN - 1))
        return pc.if_else(inside, values, pa.scalar(None, kind)).cast(pa.int64())
    if pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_timestamp(kind) and kind.tz:
        return values.cast(pa.int64())
    local = values.cast(pa.timestamp("us"))
    if zone == "UTC":
        return local.cast(pa.int64())
    try:
        return pc.assume_timezone(local, zone, ambiguous="earliest").cast(pa.int64())
    except pa.ArrowInvalid:
        # convert times that a clock set forward skips by the clock before
        return pa.array([None if t is None else _instant(t, zone) for t in local.to_pylist()], pa.int64())


def _instant(local: datetime, zone: str) -> int:
    moment = local.replace(tzinfo=ZoneInfo(zone))
    offset = moment.utcoffset()
    assert offset is not None
    return (local - offset - datetime(1970, 1, 1)) // timedelta(microseconds=1)


@dataclass(frozen=True)
class RecordTask:
    """Task that decodes records to a packed frame."""

    layout: RecordLayout
    buffering: Buffering

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Type and fold until the input ends."""
        settle()
        yield from buffered(self.buffering, map(self.layout.typed, batches))


def decode_cells(
    cells: Cells, target: Target, known: Known, reading: RowReading, key: tuple[str, ...] | None = None
) -> Decoded:
    """Decode rows into changes; each is the state of its key.

    :param key: the key columns; default: the target's.
    :return: the changes; the caller clears Spark's cache when the batch is done.
    :raises InputError: key or order column are missing, or the type of the latter has no order; nothing is written.
    """
    key = target.key if key is None else key
    if not cells.columns:
        # without records the columns are unknown
        return Decoded(tuple(Column(k, target.columns.get(k, "string")) for k in key), target.key)
    chosen = [c for c in cells.columns if c.name not in target.exclude_columns]
    _check_present(chosen, key, reading.order_by, target.table)
    columns = stored_columns(chosen, target, known.types)
    types = {c.name: c.type for c in columns}
    _check_order(reading, types, target.table)
    folds = bool(key) and known.folds and can_fold(target)
    tasks = cells.frame.sparkSession.sparkContext.defaultParallelism
    groups = grouping(known.partition_by, key, [types[name] for name in key], tasks)
    records, layout = _prepared(cells, columns, key, target, reading)
    every = bool(target.history_table) or not folds
    buffering = Buffering(groups if folds else None, reading.epoch, list(types), every)

    def every_event() -> Rows:
        unfolded = decode_cells(cells, target, replace(known, folds=False), reading, key).rows
        assert unfolded is not None
        return unfolded

    packed = run_tasks(records, RecordTask(layout, buffering), packing.SCHEMA)
    rows = gathered(packed, PackedLayout(types, key, groups, reading.epoch), buffering, every_event)
    kinds = {f.name: sql_type(f.dataType) for f in cells.frame.schema.fields}
    carried = ", ".join(f"{quoted_column(name)} {kinds[name]}" for name in cells.carried)
    facts = rows.facts
    return Decoded(
        columns,
        target.key,
        rows if facts.row_events else None,
        rows.rejected(carried, cells.messages),
        newest=facts.newest_moment,
        events=facts.row_events,
    )


def stored_columns(cells: Sequence[Column], target: Target, known: Mapping[str, str]) -> tuple[Column, ...]:
    """Return the target's columns for cells.

    :param cells: columns with their types in the files.
    :param known: Spark SQL types of the target's columns by name; empty if there is no table yet.
    """
    chosen = {c.name: chosen_type(target, c.name) for c in cells if c.name in target.columns}
    return tuple(Column(c.name, stored_type(c, chosen.get(c.name), known.get(c.name))) for c in cells)


def _check_present(columns: list[Column], key: tuple[str, ...], order_by: str | None, table: str) -> None:
    names = [c.name for c in columns]
    twice = alike(names)
    if twice:
        raise InputError(
            f"The columns {', '.join(twice)} differ only in case; the catalog cannot tell them apart.",
            table=table,
            hint='Leave one out with "exclude_columns", or correct the headers of the files.',
        )
    missing = sorted({*key, *([order_by] if order_by else [])} - set(names))
    if missing:
        raise InputError(
            f"The source has no columns {', '.join(missing)}; it has {', '.join(names)}.",
            table=table,
            hint="Correct key and order column (case matters), or the format's settings.",
        )


def _check_order(reading: RowReading, types: Mapping[str, str], table: str) -> None:
    kind = types.get(reading.order_by or "", "bigint")
    is_whole = kind in INTEGER_BYTES or (kind.startswith("decimal") and kind.endswith(",0)"))
    if not is_whole and kind not in ("date", "timestamp", "timestamp_ntz"):
        raise InputError(
            f"The order column {reading.order_by!r} is of type {kind}.",
            table=table,
            hint=f'Make it an integer, a date or a timestamp, as in "columns": {{"{reading.order_by}": "bigint"}}.',
        )


def _prepared(
    cells: Cells, columns: tuple[Column, ...], key: tuple[str, ...], target: Target, reading: RowReading
) -> tuple[DataFrame, RecordLayout]:
    """Return the records with the cells that Spark prepares, and the layout for tasks."""
    cell_of = {cell.name: (place, cell) for place, cell in enumerate(cells.columns)}
    conversions = {c.name: prepared(cell_of[c.name][1], c.type, reading.timestamp_format) for c in columns}
    more = [F.expr(sql).alias(f"c{i}") for i, (sql, _) in enumerate(conversions.values()) if sql is not None]
    # each once: a record's message may have the same columns
    records = cells.frame.select(*dict.fromkeys((*cells.carried, "arrival", "cells", "problem")), *more)
    layout = RecordLayout(
        columns,
        tuple(cell_of[c.name][0] for c in columns),
        frozenset(name for name, (_, is_text) in conversions.items() if is_text),
        key,
        "u" if key and target.mode != "append" else "c",
        cells.carried,
        reading,
    )
    return records, layout
