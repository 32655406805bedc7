"""Write a packed batch in tasks: folded rows with their keys, or every event."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.contract.target import (
    OLD_KEY_COLUMN,
    OP_COLUMN,
    ORDER_COLUMN,
    SOURCE_TABLE_COLUMN,
    TIME_COLUMN,
    UNCHANGED_COLUMN,
)
from lakecdc.iceberg import definition
from lakecdc.iceberg.core_time import run_tasks
from lakecdc.iceberg.file_io import folder_of_work
from lakecdc.ingest.engine import packing
from lakecdc.ingest.engine.fold import columns, left_out_in, may_have_been
from lakecdc.ingest.engine.packed import PackedRows
from lakecdc.ingest.merging.tasks import Origin
from lakecdc.key_search.row_ids import COLUMN
from lakecdc.runtime.worker import open_duckdb, settle
from lakecdc.writer.files import RESULT, PartitionFiles, slices
from lakecdc.writer.frame import iceberg_files
from lakecdc.writer.parquet import FileLayout, refusal
from lakecdc.writer.partitions import Partitioning, columns_of, partitioning_of, with_partitions

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.apply.publish import Staged
    from lakecdc.ingest.batch import Batch
    from lakecdc.ingest.change import Rows
    from lakecdc.key_search.row_ids import RowIds

# up to this many rows are not worth separate files next to those of completed rows
_FEW_ROWS = 20_000
# rows per file without partitions; more files would only be smaller
_ROWS_PER_FILE = 250_000
_OWN = {ORDER_COLUMN: "order", TIME_COLUMN: "time_us"}
_EVENT = {**_OWN, OP_COLUMN: "op", UNCHANGED_COLUMN: "open", OLD_KEY_COLUMN: "was", SOURCE_TABLE_COLUMN: "of_table"}
# own columns that a table may be partitioned by
_EVENT_TYPES = {ORDER_COLUMN: "string", TIME_COLUMN: "timestamp", OP_COLUMN: "string"}
# types of key columns whose JSON is equal in Spark and Python
_PLAIN_KEYS = ("int", "bigint", "smallint", "tinyint", "string")
# Spark writes these digits in upper case; an escaped backslash does not begin an escape
_ESCAPED = re.compile(r"\\\\|\\u00[01][0-9a-f]")


def writable(table: IcebergTable, batch: Batch, rows: Rows, live_specs: list[int]) -> PackedRows | None:
    """Return the rows if they are packed as the table's files need them, or None to write them as a frame."""
    if not isinstance(rows, PackedRows) or not rows.folded or set(live_specs) - {definition.current_spec_id(table)}:
        return None
    partitioning = partitioning_of(table, rows.layout.types, {name: f"k{i}" for i, name in enumerate(batch.key)})
    if partitioning != rows.layout.grouping.partitioning or refusal(table, partitioning) is not None:
        return None
    few = rows.completed is not None and 0 < rows.facts.whole <= _FEW_ROWS
    return None if few else rows


@dataclass(frozen=True)
class OutputParts:
    """Parts of folded rows to write in one pass.

    :param rows: the rows, as data files.
    :param keys: their keys, as equality deletes.
    :param memory: table for the deletes to remember: the key, order key and source time of each.
    :param ids: ids of the rows that they replace.
    """

    rows: bool = True
    keys: bool = True
    memory: IcebergTable | None = None
    ids: RowIds | None = None


def stage(table: IcebergTable, batch: Batch, packed: PackedRows, staged: Staged, outputs: OutputParts) -> list[Any]:
    """Write folded rows, uncommitted.

    :param staged: collects the files.
    :return: data files of the deletes to remember.
    """
    if not (outputs.rows or outputs.keys or outputs.memory):
        return []
    of_key = {name: f"k{i}" for i, name in enumerate(batch.key)}
    of_row = {name: f"c{i}" for i, name in enumerate(packed.layout.types)} | _OWN
    by = packed.layout.grouping.partitioning or ()
    cells = packed.cells.select("packed")
    if not by:
        # one task per file
        cells = cells.coalesce(max(1, -(-packed.facts.keys // _ROWS_PER_FILE)))
    with ExitStack() as folders:
        folder = folders.enter_context(folder_of_work(table, "ingest"))
        rows = FileLayout.of(table, folder, of_row, by) if outputs.rows else None
        if rows is not None and outputs.ids is not None:
            rows = rows.with_column(COLUMN)
        keys = FileLayout.of(table, folder, of_key, by, batch.key) if outputs.keys else None
        remembered, memory = None, outputs.memory
        if memory is not None:
            remembered = FileLayout.of(memory, folders.enter_context(folder_of_work(memory, "deletes")), of_key | _OWN)
        task = FoldedTask(rows, keys, remembered, staged.proven, outputs.ids, of_key)
        results = run_tasks(cells, task, RESULT).collect()
        staged.data_files += iceberg_files(table, results, "rows")
        staged.delete_files += iceberg_files(table, results, "keys", batch.key)
        return iceberg_files(memory, results, "remembered") if memory else []


@dataclass(frozen=True)
class FoldedTask:
    """Task that writes packed rows without placeholders, keys, and deletes to remember; yields one row per file.

    :param proven: keys that the events insert first are not deleted.
    :param key: the key's columns in packed tables, by name.
    """

    rows: FileLayout | None
    keys: FileLayout | None
    remembered: FileLayout | None
    proven: bool
    ids: RowIds | None
    key: Mapping[str, str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        # rows are ordered by partition
        row_files = PartitionFiles(self.rows, "rows", most=1) if self.rows else None
        key_files = PartitionFiles(self.keys, "keys", most=1) if self.keys else None
        delete_files = PartitionFiles(self.remembered, "remembered") if self.remembered else None
        tables = packing.all_of(batches)
        # each look-up of ids hashes all ids
        for table in slices(tables) if self.ids else tables:
            if row_files is not None:
                rows = table.filter(pc.and_(pc.not_equal(table["op"], "d"), table["open"].is_null()))
                yield from row_files.write(self.ids.added_to(rows, self.key) if self.ids else rows)
            if key_files is not None:
                yield from key_files.write(table.filter(may_have_been(table)) if self.proven else table)
            if delete_files is not None:
                yield from delete_files.write(table.filter(pc.equal(table["op"], "d")))
        for files in filter(None, (row_files, key_files, delete_files)):
            yield from files.close()


def has_twins(packed: PackedRows) -> bool:
    """Check by hash whether events share order key, op and key, such as a repeated event."""
    if packed.layout.one_log and len(packed.facts.high_orders) <= 1:
        return False
    hashed = run_tasks(packed.cells.select("packed"), hashes_of_events, "packed binary")
    row = run_tasks(hashed.repartition(1), are_repeated, "repeated boolean").first()
    assert row is not None
    return bool(row["repeated"])


def hashes_of_events(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield packed hashes of packed events; runs in a task."""
    settle()
    with open_duckdb() as connection:
        for table in packing.all_of(batches):
            keys = columns(table, "k")
            connection.register("events", table.select(["order", "op", *keys]))
            values = ", ".join(['"order"', "op", *keys])
            hashes = connection.execute(f"SELECT hash({values}) AS hash FROM events WHERE op != 'x'").to_arrow_table()
            for cell in packing.cells(hashes):
                yield pa.RecordBatch.from_arrays([packing.binary(cell)], ["packed"])


def are_repeated(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield whether a hash occurs twice; runs in one task."""
    settle()
    hashes = [table["hash"].to_numpy() for table in packing.all_of(batches)]
    count = sum(map(len, hashes))
    repeated = bool(count) and len(np.unique(np.concatenate(hashes))) < count
    yield pa.RecordBatch.from_arrays([pa.array([repeated])], ["repeated"])


def _partitioning(table: IcebergTable, packed: PackedRows) -> Partitioning | None:
    types = _EVENT_TYPES | {**packed.layout.types}
    return partitioning_of(table, types, {name: source for name, source in _sources(packed).items() if name in types})


def _sources(packed: PackedRows) -> dict[str, str]:
    """Return the packed column of each of the table's columns."""
    return _EVENT | {name: f"c{i}" for i, name in enumerate(packed.layout.types)}


def writable_events(table: IcebergTable, batch: Batch) -> PackedRows | None:
    """Return the events if they are packed as the table's files need them, or None to write them as a frame."""
    packed = batch.rows.every_event() if batch.rows else None
    if not isinstance(packed, PackedRows):
        return None
    there, own = definition.spark_types(table), packed.layout.types
    same_types = all(there.get(name) == kind for name, kind in own.items())
    plain = OLD_KEY_COLUMN not in there or all(own[k] in _PLAIN_KEYS for k in batch.key)
    if not (same_types and plain) or refusal(table, _partitioning(table, packed)) is not None:
        return None
    return packed if batch.source.in_order or not has_twins(packed) else None


def stage_events(table: IcebergTable, batch: Batch, packed: PackedRows, staged: Staged) -> None:
    """Write the events as data files, uncommitted."""
    by = _partitioning(table, packed)
    assert by is not None
    sources = _sources(packed)
    fields = {name: sources[name] for name in packed.layout.types}
    cells = packed.cells.select("packed").coalesce(packed.layout.grouping.tasks)
    with folder_of_work(table, "events") as folder:
        layout, origin = FileLayout.of(table, folder, sources, by), Origin(batch.target.only_source)
        task = EventsTask(layout, fields, batch.key, origin)
        staged.data_files += iceberg_files(table, run_tasks(cells, task, RESULT).collect(), "events")


@dataclass(frozen=True)
class EventsTask:
    """Task that writes packed events; yields one row per file. ``fields`` maps the row's columns to packed ones."""

    layout: FileLayout
    fields: Mapping[str, str]
    key: tuple[str, ...]
    origin: Origin = Origin()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write one slice after another, each in event order."""
        settle()
        files = PartitionFiles(self.layout, "events")
        for piece in map(self._arranged, slices(packing.all_of(batches))):
            yield from files.write(piece)
        yield from files.close()

    def _arranged(self, piece: pa.Table) -> pa.Table:
        """Return a slice ordered by partition and event, with all columns of the files."""
        piece = self._without_left_out(piece)
        # a table may be partitioned by the source time
        times = piece["time_us"].cast(pa.timestamp("us", "UTC"))
        piece = piece.set_column(piece.column_names.index("time_us"), "time_us", times)
        for place, column in enumerate(self.fields[name] for name in self.key):
            # a delete has only its key
            values = pc.coalesce(piece[column], piece[f"k{place}"])
            piece = piece.set_column(piece.column_names.index(column), column, values)
        piece = with_partitions(piece, self.layout.partitioning)
        piece = piece.sort_by([(name, "ascending") for name in (*columns_of(self.layout.partitioning), "order")])
        sources = {column.source for column in self.layout.columns}
        if "was" in sources:
            piece = piece.append_column("was", self._old_keys(piece))
        if "of_table" in sources:
            at = {name: piece[name].combine_chunks() for name in ("partition", "source_table")}
            piece = piece.append_column("of_table", self.origin.tables(at))
        return piece

    def _without_left_out(self, piece: pa.Table) -> pa.Table:
        """Remove tombstones, values that an event leaves out, and all values of a delete except its key."""
        if pc.any(pc.equal(piece["op"], "x")).as_py():
            piece = piece.filter(pc.not_equal(piece["op"], "x"))
        # without a key, only the old values identify the row
        is_removed = pc.equal(piece["op"], "d" if self.key else "x")
        left_out = left_out_in(piece["open"].combine_chunks())
        for name, column in self.fields.items():
            missing = pc.or_(is_removed, left_out[name]) if name in left_out else is_removed
            values = piece[column]
            if pc.any(pc.and_(missing, values.is_valid())).as_py():
                values = pc.if_else(missing, pa.scalar(None, values.type), values)
                piece = piece.set_column(piece.column_names.index(column), column, values)
        return piece

    def _old_keys(self, piece: pa.Table) -> pa.Array:
        """Return the old keys of rows as JSON; null for rows whose key did not change."""
        moved = np.flatnonzero(piece["moved"].to_numpy())
        texts: list[str | None] = [None] * piece.num_rows
        old = [piece[f"o{place}"].take(pa.array(moved)).to_pylist() for place in range(len(self.key))]
        for at, *values in zip(moved.tolist(), *old, strict=True):
            texts[at] = key_json(dict(zip(self.key, values, strict=True)))
        return pa.array(texts, pa.string())


def key_json(document: Mapping[str, object]) -> str:
    """Return the JSON that Spark writes for a key of integers and texts."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPED.sub(lambda match: match[0].upper().replace("U", "u"), text)
