"""Files decoded in tasks, with readers that are not Iceberg's: which of them hold one of the keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import UnsupportedError
from lakecdc.erase.decode_columns import KnownColumns, columns_to_compare
from lakecdc.erase.decode_statistics import field_ids, is_of_partitions, partitions_of, summed_up, tells_key
from lakecdc.iceberg.file_io import source

if TYPE_CHECKING:
    import pyarrow as pa

#: what each task tells of a file: rows that hold a key; of a manifest the files whose bounds or partitions are a key;
#: of statistics of columns the snapshots whose values they sum up; why it cannot be decoded
SCHEMA = "location string, rows bigint, entries array<string>, snapshots array<bigint>, error string"
# what a string's bound is cut to by default
_CUT = 16


@dataclass(frozen=True)
class Wanted:
    """What is looked for in the files of one table.

    :param keys: in memory, columns in the order of ``field_ids``.
    :param field_ids: of the columns in the table.
    :param bounds: the keys as bounds in manifests.
    :param moved: field id of the column with former keys, and their texts.
    :param partitions: for each column, the ids of the partition fields that keep some of its values as they are.
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
        """The keys as values."""
        return frozenset(zip(*(column.to_pylist() for column in self.keys.columns), strict=True))

    @cached_property
    def bounds_of_columns(self) -> list[frozenset[bytes]]:
        """For each column, the bounds of all keys."""
        return [frozenset(values) for values in zip(*self.bounds, strict=True)]

    def told_by(self, partition: Mapping[int, Any]) -> bool:
        """Whether the values of a partition are a key.

        :param partition: by the ids of the partition fields.
        """
        return tells_key(partition, self.partitions, self.values)


@dataclass(frozen=True)
class Held:
    """What a file holds; see :data:`SCHEMA`."""

    rows: int = 0
    entries: Sequence[str] = ()
    snapshots: Sequence[int] = ()


def decoded(
    batches: Iterable[pa.RecordBatch], properties: Mapping[str, str], wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    """Decode files, one a row.

    :param batches: columns ``location``, and ``is_referenced`` for files that the table refers to.
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
            held, error = Held(), None
            try:
                held = _of_file(location, properties, wanted, is_referenced=is_referenced)
            except UnsupportedError as refusal:
                error = refusal.message
            except Exception as failure:
                # its message may show a value
                error = type(failure).__name__
            rows.append({"location": location, **vars(held), "error": error})
        yield pa.RecordBatch.from_pylist(rows, schema=types)


def _of_file(location: str, properties: Mapping[str, str], wanted: Wanted, *, is_referenced: bool) -> Held:
    with source(properties, location).open() as stream:
        if location.endswith(".parquet"):
            return Held(rows=rows_of(stream, wanted, is_referenced=is_referenced))
        if location.endswith(".avro"):
            return of_avro(stream, wanted)
        return Held(snapshots=summed_up(stream))


def rows_of(stream: Any, wanted: Wanted, *, is_referenced: bool) -> int:
    """Count the rows of a Parquet file that hold a key.

    :param is_referenced: whether the table refers to the file.
    :raises UnsupportedError: the file cannot be judged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    file = pq.ParquetFile(stream)
    schema = file.schema_arrow
    if is_of_partitions(schema.names):
        return sum(wanted.told_by(each) for each in partitions_of(file))
    own = columns_to_compare(schema, wanted.field_ids, wanted.known, is_referenced=is_referenced)
    moved = list[tuple[str, ...]]()
    if wanted.moved is not None and wanted.moved[0] in wanted.known:
        # a file without this column cannot tell a former key
        present = {name for name in schema.names if name.lower() in wanted.known[wanted.moved[0]]}
        moved = [(name,) for name in present]
    columns = list(dict.fromkeys(name for names in (*own, *moved) for name in names))
    rows = 0
    for batch in file.iter_batches(columns=columns) if columns else ():
        table = pa.Table.from_batches([batch])
        for names in own:
            keys = table.select(names).rename_columns(wanted.keys.column_names).cast(wanted.keys.schema)
            rows += keys.join(wanted.keys, wanted.keys.column_names, join_type="left semi").num_rows
        for (name,) in moved:
            assert wanted.moved is not None
            rows += int(pc.sum(pc.is_in(table[name], value_set=wanted.moved[1])).as_py() or 0)
    return rows


def of_avro(stream: Any, wanted: Wanted) -> Held:
    """What an Avro file holds: of a manifest the files, removed ones included, whose bounds or partitions are a key.

    A manifest list holds nothing. Statistics of partitions hold rows, as in Parquet.

    :raises UnsupportedError: it is none of these.
    """
    import fastavro

    entries: Any = fastavro.reader(stream)
    names = [each["name"] for each in entries.writer_schema.get("fields", ())]
    if not ({"data_file", "manifest_path"} & {*names} or is_of_partitions(names)):
        raise UnsupportedError("Avro, and not metadata of Iceberg")
    of_files, of_rows = (
        field_ids(entries.writer_schema, *path) for path in (("data_file", "partition"), ("partition",))
    )

    def is_key(partition: Mapping[str, Any] | None, ids: Mapping[str, int]) -> bool:
        return wanted.told_by({ids[name]: value for name, value in (partition or {}).items()})

    rows, found = 0, list[str]()
    for entry in entries:
        file = entry.get("data_file")
        if file is None:
            rows += "spec_id" in entry and is_key(entry.get("partition"), of_rows)
        elif wanted.bounds and (_bounds_tell(file, wanted) or is_key(file.get("partition"), of_files)):
            found.append(file["file_path"])
    return Held(rows, found)


def _bounds_tell(file: Mapping[str, Any], wanted: Wanted) -> bool:
    """Whether the bounds of a file are a key."""
    columns = wanted.bounds_of_columns
    sides = [_bounds(file.get(f"{side}_bounds")) for side in ("lower", "upper")]
    told = [[side[field_id] for side in sides if field_id in side] for field_id in wanted.field_ids]
    return _tell_key(told, columns) and (
        len(columns) == 1 or any(_tell_key(told, [{value} for value in key]) for key in wanted.bounds)
    )


def _tell_key(told: Sequence[Sequence[bytes]], columns: Sequence[Set[bytes]]) -> bool:
    """Whether the bounds of each column have one of its values."""
    return all(any(_is_key(bound, values) for bound in bounds) for bounds, values in zip(told, columns, strict=True))


def _bounds(told: Any) -> dict[int, bytes]:
    # Avro has no maps of numbers: Iceberg writes lists of pairs
    if isinstance(told, Mapping):
        return {int(key): value for key, value in told.items()}
    return {pair["key"]: pair["value"] for pair in told or ()}


def _is_key(bound: bytes, keys: Set[bytes]) -> bool:
    # the last character of an upper bound that was cut is raised
    return bound in keys or (len(bound) >= _CUT and any(key.startswith(bound[: _CUT - 1]) for key in keys))
