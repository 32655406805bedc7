"""Writing the events of a batch, each of them, that tasks hold packed: as rows of a table that is only appended to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.contract.target import OLD_KEY_COLUMN, OP_COLUMN, ORDER_COLUMN, TIME_COLUMN, UNCHANGED_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.file_io import folder_of_work
from lakecdc.ingest.engine import packing
from lakecdc.ingest.engine.fold import columns
from lakecdc.ingest.engine.packed import PackedRows
from lakecdc.runtime.worker import duckdb_of_its_own, settle
from lakecdc.writer.files import PartitionFiles, slices
from lakecdc.writer.parquet import FileColumn, FilePlace, file_columns, refusal
from lakecdc.writer.partitions import Partitioning, columns_of, partitioning_of, with_partitions
from lakecdc.writer.stage import RESULT, data_files

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.apply.publish import Staged
    from lakecdc.ingest.batch import Batch

_OWN = {ORDER_COLUMN: "order", TIME_COLUMN: "time_us", OP_COLUMN: "op", UNCHANGED_COLUMN: "open", OLD_KEY_COLUMN: "was"}
# of those that a table may be partitioned by
_OWN_TYPES = {ORDER_COLUMN: "string", TIME_COLUMN: "timestamp", OP_COLUMN: "string"}
# types of key columns whose JSON is the same from Spark and from Python
_PLAIN_KEYS = ("int", "bigint", "smallint", "tinyint", "string")
# what Spark writes with digits in upper case; a backslash that is escaped itself begins nothing
_ESCAPED = re.compile(r"\\\\|\\u00[01][0-9a-f]")


def has_twins(packed: PackedRows) -> bool:
    """Whether events have one order key, op and key, as one that has come twice; a few others may pass for such."""
    if not packed.has_twins:
        return False
    hashed = packed.cells.select("packed").mapInArrow(hashes_of_events, "packed binary")
    row = hashed.repartition(1).mapInArrow(are_repeated, "repeated boolean").first()
    assert row is not None
    return bool(row["repeated"])


def hashes_of_events(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield packed hashes of packed events; runs in a task."""
    import pyarrow as pa

    settle()
    with duckdb_of_its_own() as connection:
        for table in packing.all_of(batches):
            connection.register("events", table.select(["order", "op", *columns(table, "k")]))
            told = ", ".join(['"order"', "op", *columns(table, "k")])
            found = connection.execute(f"SELECT hash({told}) AS hash FROM events WHERE op != 'x'").to_arrow_table()
            for cell in packing.cells(found):
                yield pa.RecordBatch.from_arrays([packing.binary(cell)], ["packed"])


def are_repeated(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield whether one of all hashes is there twice; runs in one task."""
    import numpy as np
    import pyarrow as pa

    settle()
    hashes = [table["hash"].to_numpy() for table in packing.all_of(batches)]
    count = sum(map(len, hashes))
    repeated = bool(count) and len(np.unique(np.concatenate(hashes))) < count
    yield pa.RecordBatch.from_arrays([pa.array([repeated])], ["repeated"])


def _partitioning(table: IcebergTable, packed: PackedRows) -> Partitioning | None:
    """Find the partition fields of the events; None if tasks cannot evaluate them all."""
    columns = {f.name: (f"c{i}", f.type) for i, f in enumerate(packed.fields)}
    own = {name: (source, _OWN_TYPES[name]) for name, source in _OWN.items() if name in _OWN_TYPES}
    found = own | columns
    return partitioning_of(table, {name: t for name, (_, t) in found.items()}, {n: s for n, (s, _) in found.items()})


def writable(table: IcebergTable, batch: Batch) -> PackedRows | None:
    """Return the events if tasks hold and can write each of them; what they cannot is left to Iceberg's own writer."""
    packed = batch.rows.every_event() if batch.rows else None
    if not isinstance(packed, PackedRows):
        return None
    there, own = definition.spark_types(table), {f.name: f.type for f in packed.fields}
    told_alike = all(there.get(name) == kind for name, kind in own.items())
    plain = OLD_KEY_COLUMN not in there or all(own[k] in _PLAIN_KEYS for k in batch.key)
    if not (told_alike and plain) or _partitioning(table, packed) is None or refusal(table) is not None:
        return None
    return packed if batch.source.in_order or not has_twins(packed) else None


def stage(table: IcebergTable, batch: Batch, packed: PackedRows, staged: Staged) -> None:
    """Write the events as data files, uncommitted.

    :param staged: takes the files.
    """
    by = _partitioning(table, packed)
    assert by is not None
    sources = {f.name: f"c{i}" for i, f in enumerate(packed.fields)} | _OWN
    fields = {f.name: sources[f.name] for f in packed.fields}
    cells = packed.cells.select("packed").coalesce(packed.grouping.tasks)
    with folder_of_work(table, "events") as folder:
        task = EventsTask(FilePlace.of(table, folder), file_columns(table, sources), by, fields, batch.key)
        staged.data_files += data_files(table, cells.mapInArrow(task, RESULT).collect(), "events")


@dataclass(frozen=True)
class EventsTask:
    """Packed cells in, one row per written file out.

    :param columns: of the files.
    :param fields: columns of the row, with their columns in packed tables.
    :param key: names of the key columns.
    """

    place: FilePlace
    columns: tuple[FileColumn, ...]
    partitioning: Partitioning
    fields: Mapping[str, str]
    key: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write one slice after another, each in the order of its events."""
        settle()
        files, names = PartitionFiles(self.place, self.columns, "events"), columns_of(self.partitioning)
        for piece in map(self._arranged, slices(packing.all_of(batches))):
            yield from files.write(piece, names)
        yield from files.close()

    def _arranged(self, piece: pa.Table) -> pa.Table:
        """Return a slice in the order of its partitions and events, with all columns of the files."""
        import pyarrow as pa
        import pyarrow.compute as pc

        piece = self._as_told(piece)
        # a table may be partitioned by the moment itself
        times = piece["time_us"].cast(pa.timestamp("us", "UTC"))
        piece = piece.set_column(piece.column_names.index("time_us"), "time_us", times)
        for place, column in enumerate(self.fields[name] for name in self.key):
            # a delete has only its key
            values = pc.coalesce(piece[column], piece[f"k{place}"])
            piece = piece.set_column(piece.column_names.index(column), column, values)
        piece = with_partitions(piece, self.partitioning)
        piece = piece.sort_by([(name, "ascending") for name in (*columns_of(self.partitioning), "order")])
        if any(column.source == "was" for column in self.columns):
            piece = piece.append_column("was", self._old_keys(piece))
        return piece

    def _as_told(self, piece: pa.Table) -> pa.Table:
        """Return a slice without tombstones and values that an event leaves out; of deletes the key alone is left."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if pc.any(pc.equal(piece["op"], "x")).as_py():
            piece = piece.filter(pc.not_equal(piece["op"], "x"))
        # without a key, all there was tells the row
        gone = pc.equal(piece["op"], "d" if self.key else "x")
        left_out = _left_out(piece["open"])
        for name, column in self.fields.items():
            untold = pc.or_(gone, left_out[name]) if name in left_out else gone
            values = piece[column]
            if pc.any(pc.and_(untold, values.is_valid())).as_py():
                values = pc.if_else(untold, pa.scalar(None, values.type), values)
                piece = piece.set_column(piece.column_names.index(column), column, values)
        return piece

    def _old_keys(self, piece: pa.Table) -> pa.Array:
        """Return the keys that rows had before, as JSON; null for rows that kept theirs."""
        import numpy as np
        import pyarrow as pa

        moved = np.flatnonzero(piece["moved"].to_numpy())
        texts: list[str | None] = [None] * piece.num_rows
        old = [piece[f"o{place}"].take(pa.array(moved)).to_pylist() for place in range(len(self.key))]
        for at, *values in zip(moved.tolist(), *old, strict=True):
            texts[at] = key_json(dict(zip(self.key, values, strict=True)))
        return pa.array(texts, pa.string())


def _left_out(lists: pa.ChunkedArray) -> dict[str, pa.Array]:
    """Which events leave a column out, for each column that one does.

    :param lists: names of such columns, null for events without any.
    """
    import numpy as np
    import pyarrow as pa

    whole = lists.combine_chunks()
    names = whole.flatten().dictionary_encode()
    codes, events = names.indices.to_numpy(), whole.value_parent_indices().to_numpy()
    found = {}
    for code, name in enumerate(names.dictionary.to_pylist()):
        of_name = np.zeros(len(whole), np.bool_)
        of_name[events[codes == code]] = True
        found[name] = pa.array(of_name)
    return found


def key_json(document: Mapping[str, object]) -> str:
    """Return a key of integers and texts as Spark writes it in JSON."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPED.sub(lambda found: found[0].upper().replace("U", "u"), text)
