"""From cells to changes: tasks type the columns, find order and key, and set apart what does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.ingest.change import Column, Rows, alike
from lakecdc.ingest.engine import packing
from lakecdc.ingest.engine.decoded import Decoded, Known
from lakecdc.ingest.engine.fold import can_fold
from lakecdc.ingest.engine.grouping import grouping
from lakecdc.ingest.engine.packed import PackedLayout, gathered
from lakecdc.ingest.engine.record_task import RecordLayout, RecordTask, RowReading
from lakecdc.ingest.engine.table_fields import chosen_type
from lakecdc.ingest.formats.rows.cells import Cells, prepared, stored_type
from lakecdc.model.columns import INTEGER_BYTES
from lakecdc.sql import quoted_column, sql_type


def decode_cells(
    cells: Cells, target: Target, known: Known, reading: RowReading, key: tuple[str, ...] | None = None
) -> Decoded:
    """Decode rows into changes; each is the state of its key.

    :param key: the key columns; default: the target's.
    :return: the changes; the caller clears Spark's cache when the batch is done.
    :raises InputError: if key or order column are missing, or the latter has no order; nothing has been written then.
    """
    key = target.key if key is None else key
    if not cells.columns:
        # not even a record that could tell the columns
        return Decoded(tuple(Column(k, target.columns.get(k, "string")) for k in key), target.key)
    wanted = [c for c in cells.columns if c.name not in target.exclude_columns]
    _check_present(wanted, key, reading.order_by, target.table)
    columns = stored_columns(wanted, target, known.types)
    types = {c.name: c.type for c in columns}
    _check_order(reading, types, target.table)
    folds = bool(key) and known.folds and can_fold(target)
    every = bool(target.history_table) or not folds
    tasks = cells.frame.sparkSession.sparkContext.defaultParallelism
    groups = grouping(known.partition_by, key, [types[name] for name in key], tasks)
    records, layout = _prepared(cells, columns, key, target, reading)
    packed = records.mapInArrow(RecordTask(layout, groups if folds else None, every), packing.SCHEMA)
    rows = gathered(packed, PackedLayout(types, key, groups, reading.epoch), alone=False, every=every, folds=folds)

    def every_event() -> Rows:
        unfolded = decode_cells(cells, target, replace(known, folds=False), reading, key).rows
        assert unfolded is not None
        return unfolded

    if rows.folded and rows.unfolded is None:
        rows = replace(rows, unfolded=cache(every_event))
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
    """Return the columns that cells become.

    :param cells: with their types in the files.
    :param known: Spark SQL types of the target's columns by name; empty if there is no table yet.
    """
    chosen = {c.name: chosen_type(target, c.name) for c in cells if c.name in target.columns}
    return tuple(Column(c.name, stored_type(c, chosen.get(c.name), known.get(c.name))) for c in cells)


def _check_present(columns: list[Column], key: tuple[str, ...], order_by: str | None, table: str) -> None:
    names = [c.name for c in columns]
    twice = alike(names)
    if twice:
        raise InputError(
            f"The columns {', '.join(twice)} differ in case alone, which the catalog cannot tell apart.",
            table=table,
            hint='Leave one out with "exclude_columns", or correct the headers of the files.',
        )
    missing = sorted({*key, *([order_by] if order_by else [])} - set(names))
    if missing:
        raise InputError(
            f"The source has no columns {', '.join(missing)}; it has {', '.join(names)}.",
            table=table,
            hint="Correct key and order column, whose case matters, or the format's settings.",
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
    """Return the records with what Spark makes of their cells, and how tasks type them."""
    cell_of = {cell.name: (place, cell) for place, cell in enumerate(cells.columns)}
    made = {c.name: prepared(cell_of[c.name][1], c.type, reading.timestamp_format) for c in columns}
    more = [F.expr(sql).alias(f"c{i}") for i, (sql, _) in enumerate(made.values()) if sql is not None]
    # each once, though the message of a record may have the same columns
    records = cells.frame.select(*dict.fromkeys((*cells.carried, "arrival", "cells", "problem")), *more)
    layout = RecordLayout(
        columns,
        tuple(cell_of[c.name][0] for c in columns),
        frozenset(name for name, (_, is_text) in made.items() if is_text),
        key,
        "u" if key and target.mode != "append" else "c",
        cells.carried,
        reading,
    )
    return records, layout
