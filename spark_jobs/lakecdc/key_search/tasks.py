"""Tasks that look up keys in data files; separate from the driver's code, which workers need not import."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.iceberg.file_io import source
from lakecdc.iceberg.puffin import bitmap
from lakecdc.metadata.names import ROW_ID, ROW_ID_ID
from lakecdc.model.iceberg_columns import storage, storage_type
from lakecdc.reader.data_files import DELETES, data_file, deleted_positions
from lakecdc.reader.parquet_files import RowGroup
from lakecdc.reader.projection import Projection, ReadColumn, UnreadError, projection
from lakecdc.runtime.worker import settle
from lakecdc.writer.deletes import RESULT, FilePositions, Target, Writer, described, without_unchanged

#: the column of row ids; a file stores only ids that differ from those of its positions
ROW_IDS = ReadColumn(ROW_ID_ID, ROW_ID, "long", False)
#: a data file to search; ``known_positions`` of rows with a key are 64-bit integers, and ``parts`` are the places of
#: the keys to search for in each lookup; null: all
FILE = (
    "number int, location string, scope int, sequence_number long, first_row_id long, records long, "
    f"deletes {DELETES}, known_positions binary, parts array<array<int>>"
)


@dataclass(frozen=True)
class Stored:
    """Describe how the columns of a table are stored.

    :param properties: pyiceberg settings of the table's FileIO; not shown, because they may contain credentials.
    :param name_mapping: of ``schema.name-mapping.default``, parsed.
    :param partitioned: field ids of columns whose values may be known from a partition alone.
    :param columns: to read from hits; files that lack one, or store it in an uncertain form, are not searched.
    """

    properties: Mapping[str, str] = field(repr=False)
    name_mapping: Sequence[Mapping[str, Any]] | None = None
    partitioned: frozenset[int] = frozenset()
    columns: tuple[ReadColumn, ...] = ()

    def projection(self, stored: pa.Schema, columns: Sequence[ReadColumn]) -> Projection:
        """Return the projection of a file to some columns.

        :raises UnreadError: a column is stored in a form without certain meaning, or not in the file.
        """
        unknown: dict[int, Any] = dict.fromkeys(self.partitioned, {})
        return projection(stored, columns, self.name_mapping, unknown)


@dataclass(frozen=True)
class Lookup:
    """Keys to search for: broadcasts of :func:`packed` keys, each small enough for a task's memory.

    :param others: the part of ``keys`` to search for in the data files ``seen``; for the rest see ``keys.Seen``.
    """

    columns: tuple[ReadColumn, ...]
    keys: tuple[Any, ...] = field(repr=False)
    others: tuple[Any, ...] = field(default=(), repr=False)
    seen: frozenset[int] = field(default=frozenset(), repr=False)

    def applying(self, file: Mapping[str, Any], parts: Sequence[int] | None = None) -> Iterator[pa.Table]:
        """Yield the keys that apply to a data file: of its scope or the whole table, and strictly newer.

        :param file: described as in :data:`FILE`.
        :param parts: places of the keys to search for; default: all.
        """
        every = self.others if file["number"] in self.seen else self.keys
        for sent in every if parts is None else [every[part] for part in parts]:
            keys = unpacked(sent.value)
            if len(self.keys) > 1 and hasattr(sent, "_path"):
                # Spark caches the values until the task ends, and all of them may not fit
                vars(sent).pop("_value", None)
            here = pc.or_kleene(pc.is_null(keys["reach"]), pc.equal(keys["reach"], file["scope"]))
            applying = keys.filter(pc.and_(here, pc.greater(keys["deleted_at"], file["sequence_number"])))
            if applying.num_rows:
                yield applying.drop_columns(["reach", "deleted_at"]).combine_chunks()


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield the input rows of a task, with its worker set up."""
    settle()
    for batch in batches:
        yield from batch.to_pylist()


def _placed(rows: pa.Table, positions: pa.Array, group: RowGroup, file: Mapping[str, Any]) -> pa.Table:
    """Return rows as :class:`SearchTask` does, with ids derived where none is stored (specification, "Row Lineage").

    :param rows: keys, and the stored ids.
    """
    first, count = file["first_row_id"], len(positions)
    ids = pc.add(positions, first) if first is not None else pa.nulls(count, pa.int64())
    *keys, stored = rows.columns
    places = {"position": positions, "place": pc.subtract(positions, group.begin)}
    numbers = {"file": file["number"], "part": group.number}
    where = {name: pa.array([number] * count, pa.int32()) for name, number in numbers.items()}
    return pa.table({**_named(keys), "row_id": pc.coalesce(stored, ids), **places, **where})


def packed(keys: Sequence[pa.Table], columns: Sequence[ReadColumn]) -> bytes:
    """Serialize deleted keys (d0…, reach, deleted_at), each once per reach with its newest sequence number."""
    names = [f"d{index}" for index in range(len(columns))]
    kinds = [storage_type(column.field().type) for column in columns]
    schema = pa.schema([*zip(names, kinds, strict=True), ("reach", pa.int32()), ("deleted_at", pa.int64())])
    together = pa.concat_tables([schema.empty_table(), *(table.select(schema.names).cast(schema) for table in keys)])
    newest = together.group_by([*names, "reach"]).aggregate([("deleted_at", "max")])
    newest = newest.select([*names, "reach", "deleted_at_max"]).rename_columns(schema.names)
    return serialized(newest.cast(schema))


def serialized(table: pa.Table) -> bytes:
    """Serialize a table for :func:`unpacked`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpacked(table: bytes) -> pa.Table:
    """Deserialize a table of :func:`serialized`."""
    return pa.ipc.open_stream(table).read_all()


def read_keys(
    file: Mapping[str, Any], columns: Sequence[ReadColumn], properties: Mapping[str, str]
) -> Iterator[pa.Table]:
    """Yield the keys of a range of an equality-delete file: d0…, with its ``reach`` and ``deleted_at``.

    :param file: described as in :data:`DELETE_FILE`.
    :raises UnreadError: Iceberg's own reader has to read the file.
    """
    facts = (("reach", pa.int32()), ("deleted_at", pa.int64()))
    with source(properties, file["location"]).open() as stream:
        data = data_file(stream, file["location"])
        # a key has no default
        keys_of = projection(data.schema, [replace(column, required=True, default=None) for column in columns])
        end = data.rows if file["end"] is None else file["end"]
        for position, batch in data.batches(file["begin"], end, keys_of):
            first, last = max(file["begin"] - position, 0), min(end - position, batch.num_rows)
            if first < last:
                rows = keys_of(batch.slice(first, last - first))
                reach = {name: pa.repeat(pa.scalar(file[name], kind), rows.num_rows) for name, kind in facts}
                yield pa.table(_named(map(storage, rows.columns)) | reach)


def _likely(group: RowGroup, keys: pa.Table) -> pa.Table:
    """Return the keys that a row group may contain, by its bounds of integers and texts."""
    for place, name in enumerate(keys.column_names):
        values = keys[name]
        bounds = group.bounds(place) if pa.types.is_integer(values.type) or pa.types.is_string(values.type) else None
        if bounds is not None:
            between = pc.and_(pc.greater_equal(values, bounds[0]), pc.less_equal(values, bounds[1]))
            # bounds do not cover nulls
            keys = keys.filter(pc.or_kleene(pc.is_null(values), between))
    return keys


def rows_among(values: Sequence[pa.ChunkedArray], keys: pa.Table) -> Any:
    """Return the places of the rows whose key is among ``keys``, ``d0`` …; null equals null.

    :param values: the key columns of the rows.
    """
    first, *others = values
    if not others:
        return np.flatnonzero(pc.is_in(first, value_set=keys["d0"]).to_numpy())
    # rows and keys become numbers column by column, and rows without match are dropped early
    places, of_rows, of_keys = _numbered(first, keys["d0"])
    for place, column in enumerate(others, 1):
        some, in_rows, in_keys = _numbered(column.take(pa.array(places)), keys[f"d{place}"])
        places, width = places[some], int(in_keys.max()) + 1
        of_rows, of_keys = of_rows[some] * width + in_rows, of_keys * width + in_keys
        some, of_rows, of_keys = _numbered(pa.array(of_rows), pa.chunked_array([of_keys]))
        places = places[some]
    return places


def _numbered(values: Any, keys: pa.ChunkedArray) -> tuple[Any, Any, Any]:
    """Return the places of values that are among the keys, their numbers, and the numbers of the keys."""
    distinct = keys.unique()
    numbers = pc.index_in(values, value_set=distinct).fill_null(-1).to_numpy()
    places = np.flatnonzero(numbers >= 0)
    return places, numbers[places].astype("int64"), pc.index_in(keys, value_set=distinct).to_numpy().astype("int64")


#: results of :class:`SearchTask`: written delete files, why data files could not be read, and packed rows
HITS = f"{RESULT}, hit_rows binary"


@dataclass(frozen=True)
class SearchTask:
    """A task that searches data files for keys, and returns one row per written delete file or unreadable data file.

    :param hidden: keys to leave out.
    :param with_rows: it also returns the live rows with a key, packed, as ``hit_rows``: ``d0`` …, ``row_id``,
        ``position``, and ``place`` in the row group ``part`` of the data file ``file``.
    :param most: maximum number of hits in a file; the rows of keys that are not unique may be too many for the driver.
    """

    lookups: tuple[Lookup, ...]
    stored: Stored
    target: Target
    writer: Writer
    hidden: Lookup | None = None
    with_rows: bool = False
    most: int | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        unread, live_rows = dict[int, str](), list[pa.Table]()
        files = (positions for row in rows_of(batches) for positions in self._positions(row, unread, live_rows))
        written = list(self.writer(without_unchanged(files, self.target.merge), self.target))
        results = pa.Table.from_batches([described(written, unread)])
        cells: list[bytes | None] = [None] * results.num_rows
        if live_rows:
            results = pa.concat_tables([results, pa.Table.from_pylist([{}], results.schema)])
            cells.append(serialized(pa.concat_tables(live_rows)))
        yield from results.append_column("hit_rows", pa.array(cells, pa.binary())).combine_chunks().to_batches()

    def _positions(
        self, row: Mapping[str, Any], unread: dict[int, str], live_rows: list[pa.Table]
    ) -> Iterator[FilePositions]:
        from pyroaring import BitMap64

        number, hit, tables = row["number"], BitMap64(), list[pa.Table]()
        try:
            for place, lookup in enumerate(self.lookups):
                for positions, rows in self._hits(lookup, row, None if row["parts"] is None else row["parts"][place]):
                    if rows is not None and len(lookup.keys) > 1:
                        # a key may be in several parts
                        rows = rows.filter(pa.array([one not in hit for one in positions.to_pylist()], pa.bool_()))
                    tables += [] if rows is None else [rows]
                    hit |= bitmap(positions.to_numpy())
                    if self.most is not None and len(hit) > self.most:
                        raise UnreadError(f"more than {self.most} rows of {row['location']} have the keys")
        except UnreadError as error:
            unread[number] = str(error)
            return
        if row["known_positions"]:
            hit |= bitmap(np.frombuffer(row["known_positions"], "int64"))
        if hit or number in self.target.merge:
            known = deleted_positions(row["deletes"], row["location"], self.target.properties)
            for rows in tables:
                live = [place not in known for place in rows["position"].to_pylist()] if known else None
                live_rows.append(rows if live is None else rows.filter(pa.array(live, pa.bool_())))
            yield FilePositions(number, known, hit)

    def _hits(
        self, lookup: Lookup, file: Mapping[str, Any], parts: Sequence[int] | None
    ) -> Iterator[tuple[pa.Array, pa.Table | None]]:
        """Yield the positions of a data file's rows with one of the keys, and these rows, for each part of the keys.

        :raises UnreadError: Iceberg's own reader has to search the file.
        """
        applying = self._visible(lookup, file, parts)
        if (first := next(applying, None)) is None:
            return
        location, stored = file["location"], self.stored
        with source(stored.properties, location).open() as stream:
            data = data_file(stream, location)
            if data.rows != file["records"]:
                raise UnreadError(f"{location} has {data.rows} rows, not {file['records']}")
            stored.projection(data.schema, stored.columns)
            columns = stored.projection(data.schema, [*lookup.columns, *([ROW_IDS] if self.with_rows else [])])
            if not columns.leaves:
                raise UnreadError(f"{location} has none of the key columns")
            # rows are read again for each part of the keys, because to unpack a part for each row group takes longer
            for keys in chain([first], applying):
                for group in data.groups(columns):
                    likely = _likely(group, keys)
                    if not likely.num_rows:
                        continue
                    rows = pa.table(_named(map(storage, group.read().columns)))
                    places = rows_among(rows.columns[: len(lookup.columns)], likely)
                    positions = pa.array(places + group.begin, pa.int64())
                    hit_rows = rows.take(pa.array(places)) if self.with_rows and len(places) else None
                    yield positions, None if hit_rows is None else _placed(hit_rows, positions, group, file)

    def _visible(self, lookup: Lookup, file: Mapping[str, Any], parts: Sequence[int] | None) -> Iterator[pa.Table]:
        """Yield the keys that apply to a data file, without hidden ones."""
        for keys in lookup.applying(file, parts):
            for known in self.hidden.applying(file) if self.hidden else ():
                keys = without(keys, known)
            if keys.num_rows:
                yield keys


#: a range of an equality-delete file, and the data files its keys apply to; without ``end``, to the file's end
DELETE_FILE = "number int, location string, reach int, deleted_at long, begin long, end long"
#: results of :class:`KeysTask`: packed keys, and why delete files could not be read, by number
KEYS = "keys binary, unread map<int, string>"


@dataclass(frozen=True)
class KeysTask:
    """A task that reads delete files and returns their keys.

    :param properties: pyiceberg settings of the table's FileIO; not shown, because they may contain credentials.
    :param among: return only the keys that are among these.
    """

    columns: tuple[ReadColumn, ...]
    properties: Mapping[str, str] = field(repr=False)
    among: Any = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables, unread = list[pa.Table](), dict[int, str]()
        among = None if self.among is None else unpacked(self.among.value)
        for file in rows_of(batches):
            try:
                keys = list(read_keys(file, self.columns, self.properties))
            except UnreadError as error:
                unread[file["number"]] = str(error)
                continue
            tables += keys if among is None else [only(some, among) for some in keys]
        schema = pa.schema({"keys": pa.binary(), "unread": pa.map_(pa.int32(), pa.string())})
        result = {"keys": packed(tables, self.columns), "unread": list(unread.items())}
        yield pa.RecordBatch.from_pylist([result], schema)


#: results of :class:`DeletedKeysTask`: packed keys, the number of rows, and whether a file could not be read
DELETED = "keys binary, rows long, unread boolean"


@dataclass(frozen=True)
class DeletedKeysTask:
    """A task that returns the keys of rows that a data file's deletes delete, and its earlier deletes do not.

    Its input rows are the files' ``location``, ``earlier`` and ``deletes``.
    """

    columns: tuple[ReadColumn, ...]
    properties: Mapping[str, str] = field(repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables, rows, unread = list[pa.Table](), 0, False
        for file in rows_of(batches):
            of_file = file["location"], self.properties
            positions = deleted_positions(file["deletes"], *of_file) - deleted_positions(file["earlier"], *of_file)
            rows += len(positions)
            try:
                tables += self._keys_at(file["location"], np.frombuffer(positions.to_array(), "int64"))
            except UnreadError:
                unread = True
        schema = pa.schema({"keys": pa.binary(), "rows": pa.int64(), "unread": pa.bool_()})
        result = {"keys": packed(tables, self.columns), "rows": rows, "unread": unread}
        yield pa.RecordBatch.from_pylist([result], schema)

    def _keys_at(self, location: str, positions: Any) -> Iterator[pa.Table]:
        with source(self.properties, location).open() as stream:
            data = data_file(stream, location)
            for group in data.groups(projection(data.schema, self.columns)):
                here = positions[(positions >= group.begin) & (positions < group.end)] - group.begin
                if len(here):
                    yield searched_keys([storage(column) for column in group.read().take(here).columns])


def searched_keys(values: Sequence[pa.ChunkedArray]) -> pa.Table:
    """Return keys that apply to every file of the table; see :func:`packed`."""
    rows = len(values[0])
    facts = {"reach": pa.nulls(rows, pa.int32()), "deleted_at": pa.repeat(pa.scalar(2**62, pa.int64()), rows)}
    return pa.table(_named(values) | facts)


def only(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows whose key, ``d0`` …, is among ``keys`` and has no null."""
    return _compared(rows, keys, "left semi")


def without(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows whose key, ``d0`` …, is not among ``keys`` or has a null."""
    return _compared(rows, keys, "left anti")


def _compared(rows: pa.Table, keys: pa.Table, how: Literal["left semi", "left anti"]) -> pa.Table:
    names = [name for name in keys.column_names if re.fullmatch(r"d\d+", name)]
    return rows.join(keys.select(names), names, join_type=how, use_threads=False)


def _named(keys: Iterable[pa.ChunkedArray]) -> dict[str, Any]:
    return {f"d{index}": column for index, column in enumerate(keys)}
