"""Live files of a snapshot, and the oldest day of its rows, read from manifests through pyiceberg."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.lake.tables import partition_of
from lakecdc.metadata.cold import TimeField
from lakecdc.metadata.file_facts import Content, LiveFile
from lakecdc.metadata.locations import resolve
from lakecdc.metadata.names import PATH_ID
from lakecdc.metadata.overlap import ColumnBounds

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.types import IcebergType

# reads wait for the store, decoding is bound by the GIL
_THREADS = 4
#: field id of the data file that a delete file references (Iceberg specification, data_file struct)
_REFERENCED_ID = 143


def live_files(table: Table, manifests: Sequence[ManifestFile], columns: Sequence[int] = ()) -> Iterator[LiveFile]:
    """Yield the live files of a snapshot's manifests with their bounds of some primitive columns."""
    types = {column: table.schema().find_type(column) for column in columns}
    root = table.location()
    unpartitioned = {number for number, spec in table.specs().items() if spec.is_unpartitioned()}
    with ThreadPoolExecutor(_THREADS) as pool:
        for manifest, entries in zip(manifests, pool.map(partial(_entries, table), manifests), strict=True):
            for entry in entries:
                file = _live_file(entry, manifest, root, manifest.partition_spec_id in unpartitioned)
                bounds = tuple(_column_bounds(entry.data_file, column, kind) for column, kind in types.items())
                yield replace(file, bounds=bounds) if types else file


def _entries(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    """Read entries with all fields of version 3; pyiceberg itself drops the fields that version 2 lacks."""
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.manifest import (
        MANIFEST_ENTRY_SCHEMAS,
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestEntry,
        ManifestEntryStatus,
    )

    with AvroFile[ManifestEntry](
        table.io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[3],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        return [entry for entry in reader if entry.status != ManifestEntryStatus.DELETED]


def _live_file(entry: ManifestEntry, manifest: ManifestFile, root: str, everywhere: bool) -> LiveFile:
    """Convert a manifest entry.

    :param root: the table's location.
    :param everywhere: whether its spec's equality deletes apply to all partitions.
    """
    file = entry.data_file
    file.spec_id = manifest.partition_spec_id
    content = _content(file)
    named = _location(file, content)
    # without a sequence number, an entry inherits its manifest's (Iceberg specification, sequence number inheritance)
    sequence = manifest.sequence_number if entry.sequence_number is None else entry.sequence_number
    return LiveFile(
        content,
        None if content is Content.EQUALITY_DELETES and everywhere else partition_of(file),
        file.file_size_in_bytes,
        file.record_count,
        sequence or 0,
        None if named is None else resolve(named, root),
        file.file_path if content is Content.DELETION_VECTOR else None,
        sum((file.column_sizes or {}).values()),
        entry.snapshot_id or manifest.added_snapshot_id or 0,
    )


def _column_bounds(file: DataFile, column: int, kind: IcebergType) -> ColumnBounds:
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import PrimitiveType

    assert isinstance(kind, PrimitiveType)
    lower, upper = ((bounds or {}).get(column) for bounds in (file.lower_bounds, file.upper_bounds))
    values, nulls, nans = (
        (counts or {}).get(column) for counts in (file.value_counts, file.null_value_counts, file.nan_value_counts)
    )
    return ColumnBounds(
        None if lower is None else from_bytes(kind, lower),
        None if upper is None else from_bytes(kind, upper),
        nulls is not None and nulls == values,
        nulls is not None and nulls + (nans or 0) == 0,
    )


def _content(file: DataFile) -> Content:
    from pyiceberg.manifest import DataFileContent, FileFormat

    if file.content == DataFileContent.DATA:
        return Content.DATA
    if file.content == DataFileContent.EQUALITY_DELETES:
        return Content.EQUALITY_DELETES
    return Content.DELETION_VECTOR if file.file_format == FileFormat.PUFFIN else Content.POSITION_DELETES


def _location(file: DataFile, content: Content) -> str | None:
    """Return a data file's location, or the one that a delete file references, also by equal path bounds."""
    from pyiceberg.manifest import DATA_FILE_TYPE

    if content is Content.DATA:
        return file.file_path
    if content is Content.EQUALITY_DELETES:
        return None
    referenced = [field.field_id for field in DATA_FILE_TYPE[3].fields].index(_REFERENCED_ID)
    if (named := file[referenced]) is not None:
        return str(named)
    lower, upper = ((bounds or {}).get(PATH_ID) for bounds in (file.lower_bounds, file.upper_bounds))
    return lower.decode() if lower and lower == upper else None


def time_fields(table: Table) -> dict[int, list[TimeField]]:
    """Return the fields of each partition spec, by the keys of :func:`partition_of`."""
    schema = table.schema()
    kinds = {id: str(schema.find_type(id)) for id in schema.field_ids}
    return {
        number: [
            TimeField(str(position), str(field.transform), kinds.get(field.source_id, ""))
            for position, field in enumerate(spec.fields)
        ]
        for number, spec in table.specs().items()
    }


def oldest_day(table: Table, manifests: Iterable[ManifestFile], column: str | None) -> date | None:
    """Return the day (UTC) before which no row of a snapshot has a time, from day partitions in its manifest list.

    :param column: the time column.
    :return: None if unknown, as not all files are partitioned by the column's day.
    """
    from pyiceberg.conversions import from_bytes
    from pyiceberg.manifest import ManifestContent
    from pyiceberg.types import DateType
    from pyiceberg.utils.datetime import days_to_date

    positions = {number: _position(table, number, column) for number in table.specs()}
    days = []
    for manifest in manifests:
        if manifest.content == ManifestContent.DELETES:
            continue
        position = positions[manifest.partition_spec_id]
        if position is None or not manifest.partitions:
            return None
        # a missing bound means that no row has a time
        if (lower := manifest.partitions[position].lower_bound) is not None:
            # pyiceberg declares one type for all kinds of bounds
            lower_day: Any = from_bytes(DateType(), lower)
            days.append(days_to_date(lower_day))
    return min(days, default=None)


def _position(table: Table, spec_id: int, column: str | None) -> int | None:
    known = {field.field_id: field.name for field in table.schema().fields}
    for number, field in enumerate(table.specs()[spec_id].fields):
        if known.get(field.source_id) == column and str(field.transform) == "day":
            return number
    return None
