"""Tasks that look up keys in data files; apart from the driver's code, which workers need not import."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakecdc.iceberg.file_io import source
from lakecdc.iceberg.puffin import bitmap
from lakecdc.metadata.names import ROW_ID, ROW_ID_ID
from lakecdc.reader.data_files import deleted_positions, parquet_file
from lakecdc.reader.projection import UnreadError
from lakecdc.runtime.worker import duckdb_of_its_own, settle
from lakecdc.writer.deletes import RESULT, FilePositions, described, without_unchanged

if TYPE_CHECKING:
    from lakecdc.writer.deletes import Target, Writer

_FIELD_ID = b"PARQUET:field_id"
#: Iceberg's types of keys that tasks compare as Iceberg does
PLAIN = re.compile(r"^(boolean|int|long|string|date|timestamp|timestamptz|decimal\(\d+, \d+\))$")


@dataclass(frozen=True)
class KeyColumn:
    """One column of the key, with Iceberg's name of its type."""

    field_id: int
    type: str

    @property
    def arrow(self) -> pa.DataType:
        """Return the Arrow type in which keys are compared."""
        if self.type.startswith("decimal"):
            precision, scale = self.type[8:-1].split(",")
            return pa.decimal128(int(precision), int(scale))
        plain = {
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "string": pa.string(),
            "date": pa.date32(),
            "timestamp": pa.timestamp("us"),
            "timestamptz": pa.timestamp("us", "UTC"),
        }
        return plain[self.type]

    def takes(self, stored: pa.DataType) -> bool:
        """Check whether values of a file's type may become the column's (specification, "Schema Evolution")."""
        expected = self.arrow
        if pa.types.is_decimal128(expected) and pa.types.is_decimal128(stored):
            return bool(stored.scale == expected.scale and stored.precision <= expected.precision)
        return bool(stored == expected or (self.type == "long" and stored == pa.int32()))


@dataclass(frozen=True)
class Lookup:
    """The deleted keys of one set of columns: a broadcast of the result of :func:`packed`."""

    columns: tuple[KeyColumn, ...]
    keys: Any = field(repr=False)

    def hits(
        self, file: Mapping[str, Any], properties: Mapping[str, str], *, with_rows: bool = False
    ) -> Iterator[tuple[pa.Array, pa.Table | None]]:
        """Yield the positions of a data file's rows with a deleted key, per row group, and these rows.

        :param file: its ``location``, ``scope`` (number of its spec and partition), ``sequence_number`` and, for rows,
            ``number`` and ``first_row_id``.
        :param with_rows: with their keys, ``d0`` …, ``row_id`` and ``file``; otherwise None.
        :raises UnreadError: the file has to be read by another engine.
        """
        keys = self._applying(file)
        if not keys.num_rows:
            return
        with source(properties, file["location"]).open() as stream:
            parquet = parquet_file(stream, file["location"])
            leaves, begin = _leaves(parquet, self.columns), 0
            stored = _leaf_of_row_ids(parquet) if with_rows else []
            for group in range(parquet.num_row_groups):
                rows = parquet.metadata.row_group(group)
                likely = _likely(rows, leaves, keys)
                if likely.num_rows:
                    read = parquet.reader.read_row_group(group, column_indices=leaves + stored, use_threads=False)
                    positions = _matching(read, likely, self.columns, begin)
                    hit = read.take(pc.subtract(positions, begin)) if with_rows else None
                    yield positions, self._identified(hit, positions, file) if hit is not None else None
                begin += rows.num_rows

    def _identified(self, rows: pa.Table, positions: pa.Array, file: Mapping[str, Any]) -> pa.Table:
        """Return keys, ids and the file's number; a row without an id has that of its place (specification)."""
        first = file["first_row_id"]
        ids = pc.add(positions, first) if first is not None else pa.nulls(len(positions), pa.int64())
        if ROW_ID in rows.column_names:
            ids = pc.coalesce(rows[ROW_ID].cast(pa.int64()), ids)
        values = {f"d{index}": column for index, column in enumerate(_values(rows, self.columns))}
        return pa.table({**values, "row_id": ids, "file": pa.repeat(pa.scalar(file["number"], pa.int32()), len(ids))})

    @cached_property
    def all(self) -> pa.Table:
        """Return the keys, each with where it applies; see :func:`packed`."""
        return unpacked(self.keys.value)

    def _applying(self, file: Mapping[str, Any]) -> pa.Table:
        """Select the keys that apply to a data file: of its scope or the whole table, and strictly newer."""
        keys = self.all
        here = pc.or_kleene(pc.is_null(keys["reach"]), pc.equal(keys["reach"], file["scope"]))
        applying = keys.filter(pc.and_(here, pc.greater(keys["deleted_at"], file["sequence_number"])))
        return applying.drop_columns(["reach", "deleted_at"]).combine_chunks()


def packed(keys: Sequence[pa.Table], columns: Sequence[KeyColumn]) -> bytes:
    """Serialize deleted keys (d0…, reach, deleted_at), each once per reach with its newest sequence number."""
    names = [f"d{index}" for index in range(len(columns))]
    kinds = [column.arrow for column in columns]
    schema = pa.schema([*zip(names, kinds, strict=True), ("reach", pa.int32()), ("deleted_at", pa.int64())])
    together = pa.concat_tables([schema.empty_table(), *(table.select(schema.names).cast(schema) for table in keys)])
    newest = together.group_by([*names, "reach"]).aggregate([("deleted_at", "max")])
    newest = newest.select([*names, "reach", "deleted_at_max"]).rename_columns(schema.names)
    return serialized(newest.cast(schema))


def serialized(table: pa.Table) -> bytes:
    """Return a table as bytes for :func:`unpacked`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpacked(keys: bytes) -> pa.Table:
    return pa.ipc.open_stream(keys).read_all()


def read_keys(location: str, columns: Sequence[KeyColumn], properties: Mapping[str, str], file: Any) -> pa.Table:
    """Read an equality-delete file's keys: d0…, and its ``reach`` and ``deleted_at``; or raise UnreadError."""
    with source(properties, location).open() as stream:
        parquet = parquet_file(stream, location)
        rows = parquet.reader.read_all(column_indices=_leaves(parquet, columns), use_threads=False)
    keys = {f"d{index}": values for index, values in enumerate(_values(rows, columns))}
    facts = (("reach", pa.int32()), ("deleted_at", pa.int64()))
    return pa.table(keys | {name: pa.repeat(pa.scalar(file[name], kind), rows.num_rows) for name, kind in facts})


def _leaves(file: pq.ParquetFile, columns: Sequence[KeyColumn]) -> list[int]:
    """Return the file's leaf columns with the key's field ids, if all are top-level and read exactly."""
    by_id = {int(f.metadata[_FIELD_ID]): f for f in file.schema_arrow if f.metadata and _FIELD_ID in f.metadata}
    paths = {file.schema.column(index).path: index for index in range(len(file.schema.names))}
    leaves = []
    for column in columns:
        there = by_id.get(column.field_id)
        # a dot in a path may be a level or part of a name
        if there is None or "." in there.name or not column.takes(there.type) or there.name not in paths:
            raise UnreadError(f"field {column.field_id}")
        leaves.append(paths[there.name])
    return leaves


def _leaf_of_row_ids(file: pq.ParquetFile) -> list[int]:
    """Return the file's leaf column of row ids, if it stores them."""
    fields = [f for f in file.schema_arrow if f.metadata and int(f.metadata.get(_FIELD_ID, 0)) == ROW_ID_ID]
    paths = {file.schema.column(index).path: index for index in range(len(file.schema.names))}
    return [paths[f.name] for f in fields if f.name == ROW_ID]


def _likely(rows: Any, leaves: Sequence[int], keys: pa.Table) -> pa.Table:
    """Return the keys that a row group may contain, judged by its bounds of integers and texts."""
    for place, leaf in enumerate(leaves):
        values, bounds = keys[f"d{place}"], rows.column(leaf).statistics
        comparable = pa.types.is_integer(values.type) or pa.types.is_string(values.type)
        if comparable and bounds is not None and bounds.has_min_max:
            between = pc.and_(pc.greater_equal(values, bounds.min), pc.less_equal(values, bounds.max))
            # bounds do not cover nulls
            keys = keys.filter(pc.or_kleene(pc.is_null(values), between))
    return keys


def _matching(rows: pa.Table, keys: pa.Table, columns: Sequence[KeyColumn], begin: int) -> pa.Array:
    values = _values(rows, columns)
    if len(values) == 1:
        # a null among the keys matches nulls among the values
        hit = pc.is_in(values[0], value_set=keys["d0"])
        return pa.array(np.flatnonzero(hit.to_numpy()) + begin, pa.int64())
    return _joined(pa.table({f"k{index}": value for index, value in enumerate(values)}), keys, begin)


def _values(rows: pa.Table, columns: Sequence[KeyColumn]) -> list[pa.ChunkedArray]:
    by_id = {int(f.metadata[_FIELD_ID]): index for index, f in enumerate(rows.schema)}
    return [rows.column(by_id[column.field_id]).cast(column.arrow) for column in columns]


def _joined(rows: pa.Table, keys: pa.Table, begin: int) -> pa.Array:
    """Return the rows whose whole key is among the keys; null equals null."""
    rows = rows.append_column("position", pa.array(np.arange(begin, begin + rows.num_rows)))
    width = keys.num_columns
    same = " AND ".join(f"k{index} IS NOT DISTINCT FROM d{index}" for index in range(width))
    with duckdb_of_its_own() as engine:
        engine.register("data", rows)
        engine.register("deleted", keys)
        matching = engine.execute(f"SELECT position FROM data SEMI JOIN deleted ON {same}").to_arrow_table()
    return matching["position"].combine_chunks()


#: what :class:`ConvertTask` returns with rows
FOUND = f"{RESULT}, found binary"


def with_found(results: pa.RecordBatch, found: Sequence[pa.Table]) -> list[pa.RecordBatch]:
    """Add a row with packed tables to the results of a task; both may be empty."""
    empty = pa.RecordBatch.from_pylist([{}] if found else [], results.schema)
    rows = pa.Table.from_batches([results, empty])
    cells = [None] * results.num_rows + ([serialized(pa.concat_tables(found))] if found else [])
    return rows.append_column("found", pa.array(cells, pa.binary())).combine_chunks().to_batches()


#: what :class:`KeysTask` returns: packed keys, and the numbers of the delete files that it could not read
KEYS = "keys binary, unread array<int>"


@dataclass(frozen=True)
class ConvertTask:
    """A task that reads data files and returns one row per written delete file or unreadable data file.

    :param with_rows: it also returns the keys and row ids of the rows that it newly deletes, packed, as ``found``.
    """

    lookups: tuple[Lookup, ...]
    target: Target
    writer: Writer
    with_rows: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        unread, found = list[int](), list[pa.Table]()
        files = (
            positions
            for batch in batches
            for row in batch.to_pylist()
            for positions in self._positions(row, unread, found)
        )
        written = list(self.writer(without_unchanged(files, self.target.merge), self.target))
        results = described(written, unread)
        yield from with_found(results, found) if self.with_rows else [results]

    def _positions(self, row: Mapping[str, Any], unread: list[int], found: list[pa.Table]) -> Iterator[FilePositions]:
        from pyroaring import BitMap64

        number, hit, tables = row["number"], BitMap64(), list[tuple[pa.Array, pa.Table | None]]()
        try:
            for lookup in self.lookups:
                for positions, rows in lookup.hits(row, self.target.properties, with_rows=self.with_rows):
                    hit |= bitmap(positions.to_numpy())
                    tables.append((positions, rows))
        except UnreadError:
            unread.append(number)
            return
        if hit or number in self.target.merge:
            known = deleted_positions(row["known"], row["location"], self.target.properties)
            for positions, rows in tables:
                if rows is not None:
                    live = [place not in known for place in positions.to_pylist()] if known else None
                    found.append(rows if live is None else rows.filter(pa.array(live, pa.bool_())))
            yield FilePositions(number, known, hit)


@dataclass(frozen=True)
class KeysTask:
    """A task that reads delete files and returns all their keys.

    :param properties: pyiceberg settings of the table's FileIO; not shown, because they may contain credentials.
    """

    columns: tuple[KeyColumn, ...]
    properties: Mapping[str, str] = field(repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        tables, unread = [], []
        for file in (row for batch in batches for row in batch.to_pylist()):
            try:
                tables.append(read_keys(file["location"], self.columns, self.properties, file))
            except UnreadError:
                unread.append(file["number"])
        keys = packed(tables, self.columns)
        yield pa.RecordBatch.from_pydict(
            {"keys": pa.array([keys], pa.binary()), "unread": pa.array([unread], pa.list_(pa.int32()))}
        )


#: what :class:`DeletedKeysTask` returns: packed keys, the number of rows, and whether a file could not be read
DELETED = "keys binary, rows long, unread boolean"


@dataclass(frozen=True)
class DeletedKeysTask:
    """A task that returns the keys of rows whose deletion is among a data file's deletes, and not among earlier ones.

    Its rows are the files' ``location``, ``earlier`` and ``deletes``.
    """

    columns: tuple[KeyColumn, ...]
    properties: Mapping[str, str] = field(repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files one after another."""
        settle()
        tables, rows, unread = list[pa.Table](), 0, False
        for file in (row for batch in batches for row in batch.to_pylist()):
            of_file = file["location"], self.properties
            positions = deleted_positions(file["deletes"], *of_file) - deleted_positions(file["earlier"], *of_file)
            rows += len(positions)
            try:
                tables += self._keys_at(file["location"], np.frombuffer(positions.to_array(), "int64"))
            except UnreadError:
                unread = True
        keys = [packed(tables, self.columns)], [rows], [unread]
        arrays = [pa.array(one, kind) for one, kind in zip(keys, (pa.binary(), pa.int64(), pa.bool_()), strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, ["keys", "rows", "unread"])

    def _keys_at(self, location: str, positions: Any) -> Iterator[pa.Table]:
        with source(self.properties, location).open() as stream:
            parquet = parquet_file(stream, location)
            leaves, begin = _leaves(parquet, self.columns), 0
            for group in range(parquet.num_row_groups):
                end = begin + parquet.metadata.row_group(group).num_rows
                here = positions[(positions >= begin) & (positions < end)] - begin
                if len(here):
                    rows = parquet.reader.read_row_group(group, column_indices=leaves, use_threads=False)
                    yield searched_keys(_values(rows.take(here), self.columns))
                begin = end


def searched_keys(values: Sequence[pa.ChunkedArray]) -> pa.Table:
    """Return keys that apply to each file of the table; see :func:`packed`."""
    rows = len(values[0])
    facts = {"reach": pa.nulls(rows, pa.int32()), "deleted_at": pa.repeat(pa.scalar(2**62, pa.int64()), rows)}
    return pa.table({f"d{index}": column for index, column in enumerate(values)} | facts)
