"""Write Parquet files with Arrow inside Python tasks, such as Iceberg's own writer makes of the table's properties."""

from __future__ import annotations

import importlib.util
import inspect
import math
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lakecdc.iceberg.bloom_columns import ENABLED
from lakecdc.iceberg.definition import spark_types
from lakecdc.iceberg.file_io import marked_location, output, reaches, source, storage_properties
from lakecdc.metadata.file_sizes import written_file_bytes
from lakecdc.writer.partitions import partitioning_of
from lakecdc.writer.types import UnknownTypeError, arrow_field

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.iceberg.table import IcebergTable

_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "uncompressed": "none"}
_CODEC = "write.parquet.compression-codec"
# rows that tell whether a column's values repeat
_SAMPLE = 20_000
# file systems that Java and pyiceberg name alike
_SCHEMES = ("", "file", "s3", "s3a")
# a setting of Iceberg's own writer that this one does not know
_OTHER_FORMAT = "write.format.default"
_BLOOM_RATE, _BLOOM_BYTES = "write.parquet.bloom-filter-fpp.column.", "write.parquet.bloom-filter-max-bytes"
# Iceberg's defaults of the two
_RATE, _MOST_BYTES = 0.01, 1024 * 1024
# a file's first row group tells the size of its filters, and later ones may be larger
_FEWEST_VALUES = 16_384
_GIVEN_UP = "given-up"


def refusal(table: IcebergTable) -> str | None:
    """Return why tasks cannot write files of a table; None if they can. Iceberg's own writer takes what they cannot."""
    properties = table.properties
    if importlib.util.find_spec("pyiceberg") is None:
        return "pyiceberg is not installed"
    if properties.get(_CODEC, "zstd") not in _CODECS:
        return f"{_CODEC} is {properties[_CODEC]}"
    if properties.get(_OTHER_FORMAT, "parquet") != "parquet":
        return f"{_OTHER_FORMAT} is {properties[_OTHER_FORMAT]}"
    filtered = _bloom_filters(properties)
    if filtered and not _knows_bloom_filters():
        return f"the table has {ENABLED}…, and this pyarrow writes no Bloom filters"
    if table.is_encrypted:
        return "the table is encrypted"
    place = marked_location(table)
    if urlsplit(place).scheme not in _SCHEMES or not reaches(place):
        return f"the table's files are at {place}"
    types = spark_types(table)
    if partitioning_of(table, types, {name: name for name in types}) is None:
        return "the table is partitioned by transforms that tasks cannot evaluate"
    return _odd_column(table, filtered)


def _odd_column(table: IcebergTable, filtered: Collection[str]) -> str | None:
    """Return why tasks cannot write a column; None if they can write all.

    :param filtered: names of the columns with Bloom filters.
    """
    for column in file_columns(table, {}):
        try:
            column.field()
        except UnknownTypeError as error:
            return f"column {column.name} is {error}"
        if column.is_nested and any(name.startswith(f"{column.name}.") for name in filtered):
            return f"column {column.name} has Bloom filters inside"
    return None


@dataclass(frozen=True)
class FileColumn:
    """A column of a file to be written.

    :param id: Iceberg field id.
    :param type: as Iceberg's JSON of a schema has it.
    :param source: name of the column that it is filled from; None for one of nulls.
    """

    id: int
    name: str
    type: Any
    required: bool
    source: str | None

    @property
    def is_nested(self) -> bool:
        """Check whether its values have members."""
        return not isinstance(self.type, str)

    def field(self) -> pa.Field:
        """Return Arrow's field.

        :raises UnknownTypeError: tasks cannot write values of the type.
        """
        return arrow_field(self.id, self.name, self.type, self.required)


def file_columns(table: IcebergTable, sources: Mapping[str, str]) -> tuple[FileColumn, ...]:
    """Return the columns of a table's data files.

    :param sources: what each column is filled from; the others are null.
    """
    columns = table.schema_fields
    return tuple(FileColumn(c["id"], c["name"], c["type"], c["required"], sources.get(c["name"])) for c in columns)


@dataclass(frozen=True)
class FilePlace:
    """Where and how files are written.

    :param folder: location below which all of them are.
    :param properties: pyiceberg settings of the table's FileIO; not shown, they may hold credentials.
    :param codec: pyarrow's name of the compression.
    :param bloom: Bloom filters to write: false-positive rate and most bytes by column.
    :param file_bytes: size at which a file is finished.
    """

    folder: str
    properties: Mapping[str, str] = field(repr=False)
    codec: str
    bloom: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    file_bytes: int = written_file_bytes({})

    @classmethod
    def of(cls, table: IcebergTable, folder: str) -> FilePlace:
        """Return the place of files of a table that :func:`refusal` has nothing against."""
        properties = table.properties
        codec, size = _CODECS[properties.get(_CODEC, "zstd")], written_file_bytes(properties)
        return cls(folder, storage_properties(table), codec, _bloom_filters(properties), size)

    def give_up(self) -> None:
        """Tell the other tasks that the folder is going to be discarded."""
        with output(self.properties, f"{self.folder}/{_GIVEN_UP}").create(overwrite=True) as mark:
            mark.write(b"-")

    @property
    def given_up(self) -> bool:
        """Tell whether a task has given up."""
        return source(self.properties, f"{self.folder}/{_GIVEN_UP}").exists()


def _bloom_filters(properties: Mapping[str, str]) -> dict[str, tuple[float, int]]:
    most = int(properties.get(_BLOOM_BYTES, _MOST_BYTES))
    columns = [name.removeprefix(ENABLED) for name, value in properties.items() if _is_on(name, value)]
    return {column: (float(properties.get(f"{_BLOOM_RATE}{column}", _RATE)), most) for column in columns}


def _is_on(name: str, value: str) -> bool:
    return name.startswith(ENABLED) and value.lower() == "true"


def _knows_bloom_filters() -> bool:
    from pyarrow.parquet import ParquetWriter

    return "bloom_filter_options" in inspect.signature(ParquetWriter.__init__).parameters


def _values_for(rate: float, most_bytes: int) -> int:
    """Return how many different values a split-block filter of some bytes takes at a false-positive rate."""
    return max(1, int(-most_bytes * math.log(1 - rate ** (1 / 8))))


class ArrowFile:
    """One Parquet file, made when the first row comes.

    :param location: None until then.
    """

    def __init__(self, place: FilePlace, columns: Sequence[FileColumn]) -> None:
        self._place, self._columns = place, columns
        self.location: str | None = None

    def write(self, table: pa.Table) -> None:
        """Add rows, as a row group of their own.

        :raises pyarrow.ArrowInvalid: a value is missing that must not be.
        """
        if table.num_rows:
            arranged = self._arranged(table)
            if self.location is None:
                self._open(arranged)
            self._writer.write_table(arranged)

    @property
    def size(self) -> int:
        """Return the bytes so far."""
        return int(self._stream.tell()) if self.location else 0

    def close(self) -> int:
        """Finish the file.

        :return: its size.
        """
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        return size

    def _open(self, first: pa.Table) -> None:
        """Make the file.

        :param first: its first row group.
        """
        import pyarrow.parquet as pq

        self.location = f"{self._place.folder}/{uuid.uuid4()}.parquet"
        self._stream: Any = output(self._place.properties, self.location).create()
        self._writer = pq.ParquetWriter(
            self._stream,
            self._schema(),
            compression=self._place.codec,
            store_decimal_as_integer=True,
            use_dictionary=self._repeating(first),
            **self._filters(first.num_rows),
        )

    def _repeating(self, first: pa.Table) -> list[str] | bool:
        """Return the columns whose values repeat: of others a dictionary would hold all values beside their numbers."""
        import pyarrow.compute as pc

        if any(column.is_nested for column in self._columns):
            # Arrow wants the names of their leaves
            return True
        sample = first.slice(0, _SAMPLE)
        return [c.name for c in self._columns if pc.count_distinct(sample[c.name]).as_py() * 2 <= sample.num_rows]

    def _filters(self, rows: int) -> dict[str, Any]:
        """Return Arrow's option of the Bloom filters, which older versions lack; booleans have none."""
        found = {}
        for column in self._columns:
            rate, most = self._place.bloom.get(column.name, (0.0, 0))
            if rate and column.type != "boolean" and not column.is_nested:
                found[column.name] = {"ndv": min(max(rows, _FEWEST_VALUES), _values_for(rate, most)), "fpp": rate}
        return {"bloom_filter_options": found} if found else {}

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([column.field() for column in self._columns])

    def _arranged(self, table: pa.Table) -> pa.Table:
        import pyarrow as pa

        schema = self._schema()
        arrays = [
            table[c.source].cast(f.type) if c.source else pa.nulls(table.num_rows, f.type)
            for c, f in zip(self._columns, schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)
