"""Write Parquet files with Arrow inside Python tasks, following the table's properties like Iceberg's own writer."""

from __future__ import annotations

import inspect
import math
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.bloom_columns import ENABLED
from lakecdc.iceberg.file_io import marked_location, output, source, storage_properties
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata.file_sizes import written_file_bytes
from lakecdc.model.iceberg_columns import IcebergColumn, field_id, holds_uuid, storage
from lakecdc.reader import data_files
from lakecdc.writer.partitions import Partitioning

_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "uncompressed": "none"}
_CODEC, _LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"
_WITH_LEVELS = ("zstd", "gzip")
# rows to judge whether a column's values repeat
_SAMPLE = 20_000
_OTHER_FORMAT = "write.format.default"
_BLOOM_RATE, _BLOOM_BYTES = "write.parquet.bloom-filter-fpp.column.", "write.parquet.bloom-filter-max-bytes"
# Iceberg's defaults for both
_RATE, _MOST_BYTES = 0.01, 1024 * 1024
# a file's first row group decides the size of its filters, but later row groups may be larger
_FEWEST_VALUES = 16_384
_GIVEN_UP = "given-up"
#: the writer's message for a null in a required column
MISSING_VALUE = "is non-nullable, and a row has no value for it"


def refusal(table: IcebergTable, partitioning: Partitioning | None) -> str | None:
    """Return why Iceberg's own writer has to write a frame's rows to files of a table; None if tasks can.

    :param partitioning: of the files; None if tasks cannot evaluate it.
    """
    if why := files_refusal(table):
        return why
    if partitioning is None:
        return "the table is partitioned by transforms that tasks cannot evaluate"
    uuids = (column.name for column in file_columns(table, {}) if holds_uuid(column.field().type))
    return next((f"column {name} has uuids, which Spark reads as text" for name in uuids), None)


def files_refusal(table: IcebergTable) -> str | None:
    """Return why tasks cannot write rows of a table's files to new files; None if they can."""
    properties = table.properties
    if properties.get(_CODEC, "zstd") not in _CODECS:
        return f"{_CODEC} is {properties[_CODEC]}"
    if properties.get(_OTHER_FORMAT, "parquet") != "parquet":
        return f"{_OTHER_FORMAT} is {properties[_OTHER_FORMAT]}"
    filtered = bloom_filters(properties)
    if filtered and not _knows_bloom_filters():
        return f"the table has {ENABLED}…, and this pyarrow writes no Bloom filters"
    place = marked_location(table)
    if not data_files.in_reach(place):
        return f"the table's files are at {place}"
    for column in file_columns(table, {}):
        if column.is_nested and any(name.startswith(f"{column.name}.") for name in filtered):
            return f"column {column.name} has Bloom filters inside"
    return data_files.refusal(table)


@dataclass(frozen=True)
class FileColumn(IcebergColumn):
    """A column of a file to write.

    :param source: the column with its values; None for nulls.
    """

    source: str | None


def file_columns(table: IcebergTable, sources: Mapping[str, str], names: Sequence[str] = ()) -> tuple[FileColumn, ...]:
    """Return the columns of a table's files, or just the named columns; columns without a source are null."""
    columns = {c["name"]: c for c in table.schema_fields}
    fields = [columns[name] for name in names or columns]
    return tuple(FileColumn(c["id"], c["name"], c["type"], c["required"], sources.get(c["name"])) for c in fields)


@dataclass(frozen=True)
class FileLayout:
    """Location and format of the files of one kind.

    :param properties: pyiceberg settings of the table's FileIO; not shown, because they may contain credentials.
    :param codec: pyarrow's name of the compression.
    :param bloom: Bloom filters to write: false-positive rate and maximum bytes by column.
    :param level: of the compression; None for Arrow's default.
    """

    folder: str
    properties: Mapping[str, str] = field(repr=False)
    columns: tuple[FileColumn, ...]
    partitioning: Partitioning = ()
    codec: str = "zstd"
    bloom: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    file_bytes: int = written_file_bytes({})
    level: int | None = None

    @classmethod
    def of(
        cls,
        table: IcebergTable,
        folder: str,
        sources: Mapping[str, str],
        partitioning: Partitioning = (),
        names: Sequence[str] = (),
    ) -> FileLayout:
        """Return the layout of a table's files, if :func:`refusal` accepts it; see :func:`file_columns`."""
        properties, columns = table.properties, file_columns(table, sources, names)
        codec, size = _CODECS[properties.get(_CODEC, "zstd")], written_file_bytes(properties)
        storage = storage_properties(table)
        level = int(properties[_LEVEL]) if _LEVEL in properties and codec in _WITH_LEVELS else None
        return cls(folder, storage, columns, partitioning, codec, bloom_filters(properties), size, level)

    def with_column(self, column: FileColumn) -> FileLayout:
        """Return the layout with an additional column that is not in the table's schema."""
        return replace(self, columns=(*self.columns, column))

    def give_up(self) -> None:
        """Signal the other tasks that the folder will be discarded."""
        with output(self.properties, f"{self.folder}/{_GIVEN_UP}") as mark:
            mark.write(b"-")

    @property
    def given_up(self) -> bool:
        return source(self.properties, f"{self.folder}/{_GIVEN_UP}").exists()


def bloom_filters(properties: Mapping[str, str]) -> dict[str, tuple[float, int]]:
    """Return the false-positive rate and maximum bytes of each column's filter from table properties."""
    most = int(properties.get(_BLOOM_BYTES, _MOST_BYTES))
    enabled = [name for name, value in properties.items() if name.startswith(ENABLED) and value.lower() == "true"]
    columns = [name.removeprefix(ENABLED) for name in enabled]
    return {column: (float(properties.get(f"{_BLOOM_RATE}{column}", _RATE)), most) for column in columns}


def _knows_bloom_filters() -> bool:
    from pyarrow.parquet import ParquetWriter

    return "bloom_filter_options" in inspect.signature(ParquetWriter.__init__).parameters


def _values_for(rate: float, most_bytes: int) -> int:
    """Return the capacity in distinct values of a split-block filter of some bytes at a false-positive rate."""
    return max(1, int(-most_bytes * math.log(1 - rate ** (1 / 8))))


def _count_nans(column: pa.Field, values: pa.ChunkedArray) -> dict[int, int]:
    """Count the NaNs of a column by field id, including struct members; Iceberg counts none in lists and maps."""
    if pa.types.is_floating(column.type):
        return {field_id(column) or 0: pc.sum(pc.is_nan(values)).as_py() or 0}
    members = enumerate(column.type) if pa.types.is_struct(column.type) else ()
    counts = [_count_nans(member, pc.struct_field(values, [place])) for place, member in members]
    return {number: count for of_member in counts for number, count in of_member.items()}


class ArrowFile:
    """One Parquet file; the first row creates it and sets ``location``.

    :ivar rows: number of rows written.
    :ivar offsets: first byte of each row group, where readers may split the file.
    :ivar nans: number of NaNs by field id, of columns that may have some.
    """

    def __init__(self, layout: FileLayout) -> None:
        self._layout, self._columns = layout, layout.columns
        self.location: str | None = None
        self.rows, self.offsets, self.nans = 0, list[int](), Counter[int]()

    def write(self, table: pa.Table) -> None:
        """Write rows as a separate row group.

        :raises InputError: a row lacks a value that its column requires.
        :raises pyarrow.ArrowInvalid: a value does not fit the column.
        """
        if table.num_rows:
            arranged = self._arranged(table)
            if self.location is None:
                self._open(arranged)
            self.offsets.append(self.size)
            self._writer.write_table(arranged)
            for field, values in zip(arranged.schema, arranged.columns, strict=True):
                self.nans.update(_count_nans(field, values))
            self.rows += table.num_rows

    @property
    def size(self) -> int:
        return int(self._stream.tell()) if self.location else 0

    def close(self) -> int:
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        return size

    def _open(self, first: pa.Table) -> None:
        """Create the file for its first row group."""
        self.location = f"{self._layout.folder}/{uuid.uuid4()}.parquet"
        self._stream: Any = output(self._layout.properties, self.location)
        self._writer = pq.ParquetWriter(
            self._stream,
            self._schema(),
            compression=self._layout.codec,
            compression_level=self._layout.level,
            store_decimal_as_integer=True,
            use_dictionary=self._repeating(first),
            **self._filters(first.num_rows),
        )

    def _repeating(self, first: pa.Table) -> list[str] | bool:
        """Return the columns with repeating values; only they gain from a dictionary."""
        if any(column.is_nested for column in self._columns):
            # Arrow expects the names of leaves
            return True
        sample = first.slice(0, _SAMPLE)
        return [
            c.name for c in self._columns if pc.count_distinct(storage(sample[c.name])).as_py() * 2 <= sample.num_rows
        ]

    def _filters(self, rows: int) -> dict[str, Any]:
        """Return Arrow's option for Bloom filters, which older versions lack; booleans get no filter."""
        filters = {}
        for column in self._columns:
            rate, most = self._layout.bloom.get(column.name, (0.0, 0))
            if rate and column.type != "boolean" and not column.is_nested:
                filters[column.name] = {"ndv": min(max(rows, _FEWEST_VALUES), _values_for(rate, most)), "fpp": rate}
        return {"bloom_filter_options": filters} if filters else {}

    def _schema(self) -> pa.Schema:
        return pa.schema([column.field() for column in self._columns])

    def _arranged(self, table: pa.Table) -> pa.Table:
        schema, arrays = self._schema(), []
        for column, kind in zip(self._columns, schema.types, strict=True):
            values = table[column.source].cast(kind) if column.source else pa.nulls(table.num_rows, kind)
            if column.required and values.null_count:
                raise InputError(f"The column {column.name!r} {MISSING_VALUE}.")
            arrays.append(values)
        return pa.Table.from_arrays(arrays, schema=schema)
