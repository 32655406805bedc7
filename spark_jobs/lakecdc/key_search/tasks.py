"""Tasks that look up keys in data files; apart from the driver's code, which workers need not import."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakecdc.iceberg.file_io import source
from lakecdc.iceberg.puffin import bitmap
from lakecdc.metadata.names import ROW_ID, ROW_ID_ID
from lakecdc.reader.data_files import deleted_positions
from lakecdc.reader.parquet_files import parquet_file
from lakecdc.reader.projection import Projection, ReadColumn, UnreadError, projection
from lakecdc.runtime.worker import duckdb_of_its_own, settle
from lakecdc.writer.deletes import RESULT, FilePositions, Target, Writer, described, without_unchanged

if TYPE_CHECKING:
    from lakecdc.iceberg.table import Field

#: Iceberg's types of keys that tasks compare as Iceberg does
PLAIN = re.compile(r"^(boolean|int|long|string|date|timestamp|timestamptz|decimal\(\d+, \d+\))$")
#: the column of row ids, of which a file stores only those that differ from the ids of its places
ROW_IDS = ReadColumn(ROW_ID_ID, ROW_ID, "long", False)


def key_column(field: Field) -> ReadColumn:
    """Return a column of a key, without which tasks do not read a file."""
    return ReadColumn(field.id, field.name, field.type, required=True)


@dataclass(frozen=True)
class Lookup:
    """The deleted keys of one set of columns: a broadcast of the result of :func:`packed`.

    :param others: those of them that are searched for in the data files ``seen``; the rest was, see ``match.Seen``.
    :param seen: numbers of data files.
    """

    columns: tuple[ReadColumn, ...]
    keys: Any = field(repr=False)
    others: Any = field(default=None, repr=False)
    seen: frozenset[int] = field(default=frozenset(), repr=False)

    def hits(
        self, file: Mapping[str, Any], properties: Mapping[str, str], *, with_rows: bool = False
    ) -> Iterator[tuple[pa.Array, pa.Table | None]]:
        """Yield the positions of a data file's rows with a deleted key, per row group, and these rows.

        :param file: its ``location``, ``scope`` (number of its spec and partition), ``sequence_number`` and, for rows,
            ``number`` and ``first_row_id``.
        :param with_rows: with their keys, ``d0`` …, ``row_id`` and ``file``; otherwise None.
        :raises UnreadError: the file has to be read by another engine.
        """
        keys = self.applying(file)
        if not keys.num_rows:
            return
        with source(properties, file["location"]).open() as stream:
            parquet = parquet_file(stream, file["location"])
            columns = projection(parquet.schema_arrow, [*self.columns, *([ROW_IDS] if with_rows else [])])
            for *_, positions, rows in matches(parquet, columns, keys):
                if not with_rows:
                    yield positions, None
                    continue
                number = pa.repeat(pa.scalar(file["number"], pa.int32()), len(positions))
                yield positions, identified(rows, positions, file).append_column("file", number)

    def __getstate__(self) -> dict[str, Any]:
        # tasks have the keys from the broadcast alone
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def all(self) -> pa.Table:
        """Return the keys, each with where it applies; see :func:`packed`."""
        return unpacked(self.keys.value)

    @cached_property
    def rest(self) -> pa.Table:
        """Return the keys that are searched for in the data files ``seen``."""
        return unpacked(self.others.value)

    def applying(self, file: Mapping[str, Any]) -> pa.Table:
        """Select the keys to search a data file for: of its scope or the whole table, and strictly newer."""
        keys = self.rest if file["number"] in self.seen else self.all
        here = pc.or_kleene(pc.is_null(keys["reach"]), pc.equal(keys["reach"], file["scope"]))
        applying = keys.filter(pc.and_(here, pc.greater(keys["deleted_at"], file["sequence_number"])))
        return applying.drop_columns(["reach", "deleted_at"]).combine_chunks()


def matches(
    parquet: pq.ParquetFile, columns: Projection, keys: pa.Table
) -> Iterator[tuple[int, int, pa.Array, pa.Table]]:
    """Yield row groups that may have some keys: number, first position, positions of rows with a key, these rows.

    :param columns: those of the keys, and others.
    :param keys: ``d0`` …
    """
    begin = 0
    for group in range(parquet.num_row_groups):
        facts = parquet.metadata.row_group(group)
        likely = _likely(facts, columns, keys)
        if likely.num_rows:
            read = _read(parquet, group, columns)
            positions = _matching(read.columns[: keys.num_columns], likely, begin)
            yield group, begin, positions, read.take(pc.subtract(positions, begin))
        begin += facts.num_rows


def identified(rows: pa.Table, positions: pa.Array, file: Mapping[str, Any]) -> pa.Table:
    """Return keys, ``d0`` …, and ``row_id``: a row without one has the id of its place (specification).

    :param rows: keys, and ids as the file stores them.
    :param file: its ``first_row_id``.
    """
    first = file["first_row_id"]
    ids = pc.add(positions, first) if first is not None else pa.nulls(len(positions), pa.int64())
    *keys, stored = rows.columns
    return pa.table({**_named(keys), "row_id": pc.coalesce(stored, ids)})


def packed(keys: Sequence[pa.Table], columns: Sequence[ReadColumn]) -> bytes:
    """Serialize deleted keys (d0…, reach, deleted_at), each once per reach with its newest sequence number."""
    names = [f"d{index}" for index in range(len(columns))]
    kinds = [column.field().type for column in columns]
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


def unpacked(table: bytes) -> pa.Table:
    """Return the table of :func:`serialized`."""
    return pa.ipc.open_stream(table).read_all()


def read_keys(location: str, columns: Sequence[ReadColumn], properties: Mapping[str, str], file: Any) -> pa.Table:
    """Read an equality-delete file's keys: d0…, and its ``reach`` and ``deleted_at``; or raise UnreadError."""
    with source(properties, location).open() as stream:
        parquet = parquet_file(stream, location)
        wanted = projection(parquet.schema_arrow, columns)
        groups = [_read(parquet, group, wanted) for group in range(parquet.num_row_groups)]
        rows = pa.concat_tables([wanted.schema.empty_table(), *groups])
    keys = _named(rows.columns)
    facts = (("reach", pa.int32()), ("deleted_at", pa.int64()))
    return pa.table(keys | {name: pa.repeat(pa.scalar(file[name], kind), rows.num_rows) for name, kind in facts})


def _read(parquet: pq.ParquetFile, group: int, columns: Projection) -> pa.Table:
    stored = parquet.reader.read_row_group(group, column_indices=list(columns.leaves), use_threads=False)
    return pa.concat_tables([columns.schema.empty_table(), *map(columns, stored.to_batches())])


def _likely(rows: Any, columns: Projection, keys: pa.Table) -> pa.Table:
    """Return the keys that a row group may contain, judged by its bounds of integers and texts."""
    for place, name in enumerate(keys.column_names):
        values, bounds = keys[name], rows.column(columns.leaf(place)).statistics
        comparable = pa.types.is_integer(values.type) or pa.types.is_string(values.type)
        if comparable and bounds is not None and bounds.has_min_max:
            between = pc.and_(pc.greater_equal(values, bounds.min), pc.less_equal(values, bounds.max))
            # bounds do not cover nulls
            keys = keys.filter(pc.or_kleene(pc.is_null(values), between))
    return keys


def _matching(values: Sequence[pa.ChunkedArray], keys: pa.Table, begin: int) -> pa.Array:
    if len(values) == 1:
        # a null among the keys matches nulls among the values
        hit = pc.is_in(values[0], value_set=keys["d0"])
        return pa.array(np.flatnonzero(hit.to_numpy()) + begin, pa.int64())
    return _joined(pa.table({f"k{index}": value for index, value in enumerate(values)}), keys, begin)


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
        if row.get("found"):
            hit |= bitmap(np.frombuffer(row["found"], "int64"))
        if hit or number in self.target.merge:
            known = deleted_positions(row["known"], row["location"], self.target.properties)
            for positions, rows in tables:
                if rows is not None:
                    live = [place not in known for place in positions.to_pylist()] if known else None
                    found.append(rows if live is None else rows.filter(pa.array(live, pa.bool_())))
            yield FilePositions(number, known, hit)


@dataclass(frozen=True)
class KeysTask:
    """A task that reads delete files and returns their keys.

    :param properties: pyiceberg settings of the table's FileIO; not shown, because they may contain credentials.
    :param among: returns only the keys that are among these.
    """

    columns: tuple[ReadColumn, ...]
    properties: Mapping[str, str] = field(repr=False)
    among: Lookup | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        tables, unread = [], []
        for file in (row for batch in batches for row in batch.to_pylist()):
            try:
                keys = read_keys(file["location"], self.columns, self.properties, file)
            except UnreadError:
                unread.append(file["number"])
                continue
            tables.append(keys if self.among is None else only(keys, self.among.all))
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

    columns: tuple[ReadColumn, ...]
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
            columns, begin = projection(parquet.schema_arrow, self.columns), 0
            for group in range(parquet.num_row_groups):
                end = begin + parquet.metadata.row_group(group).num_rows
                here = positions[(positions >= begin) & (positions < end)] - begin
                if len(here):
                    yield searched_keys(_read(parquet, group, columns).take(here).columns)
                begin = end


def searched_keys(values: Sequence[pa.ChunkedArray]) -> pa.Table:
    """Return keys that apply to each file of the table; see :func:`packed`."""
    rows = len(values[0])
    facts = {"reach": pa.nulls(rows, pa.int32()), "deleted_at": pa.repeat(pa.scalar(2**62, pa.int64()), rows)}
    return pa.table(_named(values) | facts)


def only(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows whose key, ``d0`` …, is among others and has no null."""
    return _compared(rows, keys, "left semi")


def without(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows whose key, ``d0`` …, is not among others or has a null."""
    return _compared(rows, keys, "left anti")


def _compared(rows: pa.Table, keys: pa.Table, how: Literal["left semi", "left anti"]) -> pa.Table:
    names = [name for name in keys.column_names if re.fullmatch(r"d\d+", name)]
    return rows.join(keys.select(names), names, join_type=how, use_threads=False)


def _named(keys: Iterable[pa.ChunkedArray]) -> dict[str, Any]:
    return {f"d{index}": column for index, column in enumerate(keys)}
