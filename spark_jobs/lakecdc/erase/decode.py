"""Find files that contain a key: tasks decode them with readers other than Iceberg's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakecdc.contract.errors import UnsupportedError
from lakecdc.iceberg.file_io import source

#: a task's result per file: the number of rows with a key; for a manifest, the files whose bounds or partitions are a
#: key; for column statistics, the snapshots they summarize; the reason if the file cannot be decoded
SCHEMA = "location string, rows bigint, entries array<string>, snapshots array<bigint>, error string"
# default truncation length of a string's bounds
_CUT = 16
#: lower-case names that each field of a table has had, by field id
KnownColumns = Mapping[int, Set[str]]
# Iceberg's specification reserves the field ids above for metadata columns
_RESERVED_ABOVE = 2147483447
# the deleted row, which old writers store in position deletes
_DELETED_ROW = 2147483544
# leading columns of partition statistics, and all that may follow (Iceberg's table specification, partition
# statistics file)
_OF_PARTITIONS = ["partition", "spec_id"]
_COUNTS = {
    *("data_record_count", "data_file_count", "total_data_file_size_in_bytes", "total_record_count", "dv_count"),
    *("position_delete_record_count", "position_delete_file_count"),
    *("equality_delete_record_count", "equality_delete_file_count"),
    *("last_updated_at", "last_updated_snapshot_id"),
}
# the only kind of Puffin blob without values
_POSITIONS = "deletion-vector-v1"
# bytes after a Puffin footer's payload: its size, flags, and the magic
_BEHIND = 12


@dataclass(frozen=True)
class KeySearch:
    """Search for keys in the files of one table.

    :param keys: in memory, columns in the order of ``field_ids``.
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
        return frozenset(zip(*(column.to_pylist() for column in self.keys.columns), strict=True))

    @cached_property
    def bounds_of_columns(self) -> list[frozenset[bytes]]:
        return [frozenset(values) for values in zip(*self.bounds, strict=True)]

    def matches_partition(self, partition: Mapping[int, Any]) -> bool:
        """Check whether the values of a partition, by partition field id, are a key."""
        values = [[partition[field] for field in fields if field in partition] for fields in self.partitions]
        return any(key in self.values for key in product(*values)) if values else False


@dataclass(frozen=True)
class FileMatches:
    """Matches of one file; see :data:`SCHEMA`."""

    rows: int = 0
    entries: Sequence[str] = ()
    snapshots: Sequence[int] = ()


def search_files(
    batches: Iterable[pa.RecordBatch], properties: Mapping[str, str], search: KeySearch
) -> Iterator[pa.RecordBatch]:
    """Decode files (``location``, ``is_referenced``) and yield one row per file, see :data:`SCHEMA`."""
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
                with source(properties, location).open() as stream:
                    if location.endswith(".parquet"):
                        matches = FileMatches(rows=count_rows(stream, search, is_referenced=is_referenced))
                    elif location.endswith(".avro"):
                        matches = search_avro(stream, search)
                    else:
                        matches = FileMatches(snapshots=summarized_snapshots(stream))
            except UnsupportedError as refusal:
                error = refusal.message
            except Exception as failure:
                # its message may show a value
                error = type(failure).__name__
            rows.append({"location": location, **vars(matches), "error": error})
        yield pa.RecordBatch.from_pylist(rows, schema=types)


def count_rows(stream: Any, search: KeySearch, *, is_referenced: bool) -> int:
    """Count the rows of a Parquet file that contain a key; raise UnsupportedError if it cannot be judged."""
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
    columns = search.bounds_of_columns
    sides = [_bounds(file.get(f"{side}_bounds")) for side in ("lower", "upper")]
    bounds = [[side[field_id] for side in sides if field_id in side] for field_id in search.field_ids]
    return _match_key(bounds, columns) and (
        len(columns) == 1 or any(_match_key(bounds, [{value} for value in key]) for key in search.bounds)
    )


def _match_key(bounds: Sequence[Sequence[bytes]], columns: Sequence[Set[bytes]]) -> bool:
    return all(
        any(_is_key(bound, values) for bound in of_column) for of_column, values in zip(bounds, columns, strict=True)
    )


def _bounds(encoded: Any) -> dict[int, bytes]:
    # Avro maps have text keys only: Iceberg writes lists of pairs
    if isinstance(encoded, Mapping):
        return {int(key): value for key, value in encoded.items()}
    return {pair["key"]: pair["value"] for pair in encoded or ()}


def _is_key(bound: bytes, keys: Set[bytes]) -> bool:
    # the last character of a truncated upper bound is incremented
    return bound in keys or (len(bound) >= _CUT and any(key.startswith(bound[: _CUT - 1]) for key in keys))


def columns_to_compare(
    schema: pa.Schema, key: Sequence[int], known: KnownColumns, *, is_referenced: bool
) -> list[tuple[str, ...]]:
    """Choose the columns to compare with the key, by field id, and by name where ids prove nothing.

    Iceberg reads a referenced file by its field ids. Any other file may come from another writer, whose ids mean other
    columns.

    :return: the columns of each comparison, in the order of ``key``; empty if the file has no key column.
    :raises UnsupportedError: the file has columns unknown to the table, and not every key column by name.
    """
    columns = [(_field_id(field), field.name) for field in schema]
    if any(field_id == _DELETED_ROW for field_id, _ in columns):
        raise UnsupportedError("position deletes that contain the deleted rows")
    by_id = [[name for own, name in columns if own == field_id] for field_id in key]
    if is_referenced and all(field_id is not None for field_id, _ in columns):
        return [*product(*by_id)]
    by_name = [[name for _, name in columns if name.lower() in known.get(field_id, ())] for field_id in key]
    foreign = [name for field_id, name in columns if not _is_known(field_id, name, known)]
    if foreign and not all(by_name):
        raise UnsupportedError("columns that the table does not have, and not all of its key columns")
    return [*product(*([*dict.fromkeys(pair[0] + pair[1])] for pair in zip(by_id, by_name, strict=True)))]


def _field_id(field: pa.Field) -> int | None:
    field_id = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if field_id is None or int(field_id) < 0 else int(field_id)


def _is_known(field_id: int | None, name: str, known: KnownColumns) -> bool:
    return field_id is not None and (field_id > _RESERVED_ABOVE or name.lower() in known.get(field_id, ()))


def is_of_partitions(columns: Sequence[str]) -> bool:
    """Check whether a file with these columns contains partition statistics and nothing else."""
    return list(columns[:2]) == _OF_PARTITIONS and _COUNTS.issuperset(columns[2:])


def partitions_of(file: pq.ParquetFile) -> Iterable[Mapping[int, Any]]:
    """Yield the values of each partition in a Parquet statistics file, by partition field id."""
    of_struct = file.schema_arrow.field("partition").type
    ids = {each.name: int((each.metadata or {}).get(b"PARQUET:field_id", -1)) for each in of_struct}
    for batch in file.iter_batches(columns=["partition"]):
        for partition in batch.column("partition").to_pylist():
            yield {ids[name]: value for name, value in (partition or {}).items()}


def field_ids(schema: Any, *names: str) -> dict[str, int]:
    """Return the field ids of a record within an Avro schema, by name; fields that lead to it may be missing."""
    for name in names:
        kind: Any = next((each["type"] for each in schema.get("fields", ()) if each["name"] == name), {})
        # an optional record is a union
        schema = next((each for each in kind if isinstance(each, dict)), {}) if isinstance(kind, list) else kind
    return {each["name"]: each.get("field-id", -1) for each in schema.get("fields", ())}


def summarized_snapshots(stream: Any) -> list[int]:
    """Return the snapshots that a Puffin file summarizes; deletion vectors contain only positions and do not count."""
    from pyiceberg.table.puffin import MAGIC_BYTES, PuffinFile

    size = stream.seek(0, 2)
    stream.seek(size - _BEHIND)
    start = size - _BEHIND - int.from_bytes(stream.read(4), "little")
    stream.seek(start)
    # skip the blobs, which may be larger than memory
    footer = PuffinFile(MAGIC_BYTES + stream.read(size - start)).footer
    return [blob.snapshot_id for blob in footer.blobs if blob.type != _POSITIONS]
