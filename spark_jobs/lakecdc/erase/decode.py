"""Decoding of files in tasks, with readers other than Iceberg's, to find those that contain a key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import UnsupportedError
from lakecdc.erase.decode_columns import KnownColumns, columns_to_compare
from lakecdc.erase.decode_statistics import (
    field_ids,
    is_of_partitions,
    partition_is_key,
    partitions_of,
    summarized_snapshots,
)
from lakecdc.iceberg.file_io import source

if TYPE_CHECKING:
    import pyarrow as pa

#: a task's result per file: the number of rows with a key; for a manifest, the files whose bounds or partitions are a
#: key; for column statistics, the snapshots they summarize; the reason if the file cannot be decoded
SCHEMA = "location string, rows bigint, entries array<string>, snapshots array<bigint>, error string"
# default truncation length of a string's bounds
_CUT = 16


@dataclass(frozen=True)
class KeySearch:
    """Search for keys in the files of one table.

    :param keys: in memory, columns in the order of ``field_ids``.
    :param field_ids: of the columns in the table.
    :param bounds: the keys encoded as bounds in manifests.
    :param moved: field id of the column with former keys, and their texts.
    :param partitions: for each column, the ids of the partition fields that keep some of its values unchanged.
    :param known: the names of the table's columns.
    """

    keys: pa.Table
    field_ids: Sequence[int]
    bounds: Sequence[tuple[bytes, ...]]
    moved: tuple[int, pa.Array] | None = None
    partitions: Sequence[Set[int]] = ()
    known: KnownColumns = field(default_factory=dict)

    @cached_property
    def values(self) -> frozenset[tuple[Any, ...]]:
        """Return the keys as tuples of values."""
        return frozenset(zip(*(column.to_pylist() for column in self.keys.columns), strict=True))

    @cached_property
    def bounds_of_columns(self) -> list[frozenset[bytes]]:
        """Return the bounds of all keys, per column."""
        return [frozenset(values) for values in zip(*self.bounds, strict=True)]

    def matches_partition(self, partition: Mapping[int, Any]) -> bool:
        """Check whether the values of a partition are a key.

        :param partition: by partition field id.
        """
        return partition_is_key(partition, self.partitions, self.values)


@dataclass(frozen=True)
class FileMatches:
    """Matches of one file; see :data:`SCHEMA`."""

    rows: int = 0
    entries: Sequence[str] = ()
    snapshots: Sequence[int] = ()


def search_files(
    batches: Iterable[pa.RecordBatch], properties: Mapping[str, str], search: KeySearch
) -> Iterator[pa.RecordBatch]:
    """Decode files and yield one row per file.

    :param batches: columns ``location``, and ``is_referenced`` for files that the table references.
    :param properties: of the table's FileIO (:func:`lakecdc.iceberg.file_io.storage_properties`).
    """
    import pyarrow as pa

    types = pa.schema(
        [
            ("location", pa.string()),
            ("rows", pa.int64()),
            ("entries", pa.list_(pa.string())),
            ("snapshots", pa.list_(pa.int64())),
            ("error", pa.string()),
        ]
    )
    for batch in batches:
        rows = list[dict[str, Any]]()
        for location, is_referenced in zip(*batch.to_pydict().values(), strict=True):
            matches, error = FileMatches(), None
            try:
                matches = _search_file(location, properties, search, is_referenced=is_referenced)
            except UnsupportedError as refusal:
                error = refusal.message
            except Exception as failure:
                # its message may show a value
                error = type(failure).__name__
            rows.append({"location": location, **vars(matches), "error": error})
        yield pa.RecordBatch.from_pylist(rows, schema=types)


def _search_file(
    location: str, properties: Mapping[str, str], search: KeySearch, *, is_referenced: bool
) -> FileMatches:
    with source(properties, location).open() as stream:
        if location.endswith(".parquet"):
            return FileMatches(rows=count_rows(stream, search, is_referenced=is_referenced))
        if location.endswith(".avro"):
            return search_avro(stream, search)
        return FileMatches(snapshots=summarized_snapshots(stream))


def count_rows(stream: Any, search: KeySearch, *, is_referenced: bool) -> int:
    """Count the rows of a Parquet file that contain a key.

    :param is_referenced: whether the table references the file.
    :raises UnsupportedError: the file cannot be judged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    file = pq.ParquetFile(stream)
    schema = file.schema_arrow
    if is_of_partitions(schema.names):
        return sum(search.matches_partition(each) for each in partitions_of(file))
    own = columns_to_compare(schema, search.field_ids, search.known, is_referenced=is_referenced)
    moved = list[tuple[str, ...]]()
    if search.moved is not None and search.moved[0] in search.known:
        # a file without this column contains no former keys
        present = {name for name in schema.names if name.lower() in search.known[search.moved[0]]}
        moved = [(name,) for name in present]
    columns = list(dict.fromkeys(name for names in (*own, *moved) for name in names))
    rows = 0
    for batch in file.iter_batches(columns=columns) if columns else ():
        table = pa.Table.from_batches([batch])
        for names in own:
            keys = table.select(names).rename_columns(search.keys.column_names).cast(search.keys.schema)
            rows += keys.join(search.keys, search.keys.column_names, join_type="left semi").num_rows
        for (name,) in moved:
            assert search.moved is not None
            rows += int(pc.sum(pc.is_in(table[name], value_set=search.moved[1])).as_py() or 0)
    return rows


def search_avro(stream: Any, search: KeySearch) -> FileMatches:
    """Return the matches of an Avro file.

    A manifest matches by the files, removed ones included, whose bounds or partitions are a key. A manifest list never
    matches. Partition statistics match by rows, as in Parquet.

    :raises UnsupportedError: the file is none of these.
    """
    import fastavro

    entries: Any = fastavro.reader(stream)
    names = [each["name"] for each in entries.writer_schema.get("fields", ())]
    if not ({"data_file", "manifest_path"} & {*names} or is_of_partitions(names)):
        raise UnsupportedError("Avro, but not Iceberg metadata")
    of_files, of_rows = (
        field_ids(entries.writer_schema, *path) for path in (("data_file", "partition"), ("partition",))
    )

    def is_key(partition: Mapping[str, Any] | None, ids: Mapping[str, int]) -> bool:
        return search.matches_partition({ids[name]: value for name, value in (partition or {}).items()})

    rows, matching = 0, list[str]()
    for entry in entries:
        file = entry.get("data_file")
        if file is None:
            rows += "spec_id" in entry and is_key(entry.get("partition"), of_rows)
        elif search.bounds and (_bounds_match(file, search) or is_key(file.get("partition"), of_files)):
            matching.append(file["file_path"])
    return FileMatches(rows, matching)


def _bounds_match(file: Mapping[str, Any], search: KeySearch) -> bool:
    """Check whether the bounds of a file are a key."""
    columns = search.bounds_of_columns
    sides = [_bounds(file.get(f"{side}_bounds")) for side in ("lower", "upper")]
    bounds = [[side[field_id] for side in sides if field_id in side] for field_id in search.field_ids]
    return _match_key(bounds, columns) and (
        len(columns) == 1 or any(_match_key(bounds, [{value} for value in key]) for key in search.bounds)
    )


def _match_key(bounds: Sequence[Sequence[bytes]], columns: Sequence[Set[bytes]]) -> bool:
    """Check whether the bounds of each column include one of its values."""
    return all(
        any(_is_key(bound, values) for bound in of_column) for of_column, values in zip(bounds, columns, strict=True)
    )


def _bounds(encoded: Any) -> dict[int, bytes]:
    # Avro has no maps of numbers: Iceberg writes lists of pairs
    if isinstance(encoded, Mapping):
        return {int(key): value for key, value in encoded.items()}
    return {pair["key"]: pair["value"] for pair in encoded or ()}


def _is_key(bound: bytes, keys: Set[bytes]) -> bool:
    # the last character of a truncated upper bound is incremented
    return bound in keys or (len(bound) >= _CUT and any(key.startswith(bound[: _CUT - 1]) for key in keys))
