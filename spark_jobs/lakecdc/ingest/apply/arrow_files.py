"""Parquet files that Python tasks write with Arrow, such as Iceberg's own writer makes under the default settings."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lakecdc.iceberg.definition import current_spec_id, partition_expressions, spark_types
from lakecdc.iceberg.file_io import output, source, storage_properties
from lakecdc.ingest.formats.native.grouping import Bucket, grouping
from lakecdc.model.columns import arrow_type

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.iceberg.table import IcebergTable

_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "uncompressed": "none"}
_CODEC = "write.parquet.compression-codec"
# file systems that Java and pyiceberg name alike
_SCHEMES = ("", "file", "s3", "s3a")
# types whose values have as many bytes each
_FIXED = ("uuid", "fixed")
# the one type of lists that is written: that of the columns that an event left out
_TEXTS = "array<string>"
_FIELD_ID = "PARQUET:field_id"
# settings of Iceberg's own writer that this one does not know
_OTHER_FORMAT, _BLOOM = "write.format.default", "write.parquet.bloom-filter-enabled."
_GIVEN_UP = "given-up"


def refusal(table: IcebergTable) -> str | None:
    """Why tasks cannot write files of a table; None if they can. What they do not know is left to Iceberg's writer."""
    properties = table.properties
    if importlib.util.find_spec("pyiceberg") is None:
        return "pyiceberg is not installed"
    if properties.get(_CODEC, "zstd") not in _CODECS:
        return f"{_CODEC} is {properties[_CODEC]}"
    if properties.get(_OTHER_FORMAT, "parquet") != "parquet":
        return f"{_OTHER_FORMAT} is {properties[_OTHER_FORMAT]}"
    if any(name.startswith(_BLOOM) for name in properties):
        return f"the table has {_BLOOM}…"
    if table.is_encrypted:
        return "the table is encrypted"
    if urlsplit(table.location).scheme not in _SCHEMES:
        return f"the table is at {urlsplit(table.location).scheme}://"
    odd = [f"{name} is {kind}" for name, kind in spark_types(table).items() if _type(kind) is None]
    # Spark calls these string and binary
    odd += [f"{f.name} is {f.type}" for f in table.fields if f.type.startswith(_FIXED)]
    return f"column {odd[0]}" if odd else None


def key_buckets(table: IcebergTable, key: Sequence[str], types: Mapping[str, str]) -> tuple[Bucket, ...] | None:
    """The partition fields of new files; None if they are something else than buckets of the key.

    :param types: Spark SQL types of the key columns.
    """
    spec_id = current_spec_id(table)
    found = grouping(partition_expressions(table, spec_id), key, [types[k] for k in key], 1).buckets
    return found if found is not None and len(found) == table.java.specs().get(spec_id).fields().size() else None


@dataclass(frozen=True)
class FileColumn:
    """A column of a file to be written.

    :param id: Iceberg field id.
    :param type: Spark SQL type.
    :param source: name of the column that it is filled from; None for one of nulls.
    :param element_id: Iceberg field id of the elements of a list.
    """

    id: int
    name: str
    type: str
    required: bool
    source: str | None
    element_id: int | None = None


def file_columns(table: IcebergTable, sources: Mapping[str, str]) -> tuple[FileColumn, ...]:
    """The columns of a table's data files.

    :param sources: what each column is filled from; the others are null.
    """
    types = spark_types(table)
    elements = {name: table.field_id(f"{name}.element") for name, kind in types.items() if kind == _TEXTS}
    return tuple(
        FileColumn(f.id, f.name, types[f.name], f.required, sources.get(f.name), elements.get(f.name))
        for f in table.fields
    )


def _type(kind: str, element_id: int | None = None) -> pa.DataType | None:
    """Arrow's type of a Spark SQL type; None if files of it cannot be written."""
    import pyarrow as pa

    if kind == _TEXTS:
        return pa.list_(pa.field("element", pa.string(), True, {_FIELD_ID: str(element_id)}))
    return arrow_type(kind)


@dataclass(frozen=True)
class FilePlace:
    """Where and how files are written.

    :param folder: location below which all of them are.
    :param properties: pyiceberg settings of the table's FileIO; not shown, they may hold credentials.
    :param codec: pyarrow's name of the compression.
    """

    folder: str
    properties: Mapping[str, str] = field(repr=False)
    codec: str

    @classmethod
    def of(cls, table: IcebergTable, folder: str) -> FilePlace:
        """For files of a table that :func:`refusal` has nothing against."""
        return cls(folder, storage_properties(table), _CODECS[table.properties.get(_CODEC, "zstd")])

    def give_up(self) -> None:
        """Tell the other tasks that the folder is going to be discarded."""
        with output(self.properties, f"{self.folder}/{_GIVEN_UP}").create(overwrite=True) as mark:
            mark.write(b"-")

    @property
    def given_up(self) -> bool:
        """Whether a task has done so."""
        return source(self.properties, f"{self.folder}/{_GIVEN_UP}").exists()


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
            if self.location is None:
                self._open()
            self._writer.write_table(self._arranged(table))

    @property
    def size(self) -> int:
        """Bytes so far."""
        return int(self._stream.tell()) if self.location else 0

    def close(self) -> int:
        """Finish the file.

        :return: its size.
        """
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        return size

    def _open(self) -> None:
        import pyarrow.parquet as pq

        self.location = f"{self._place.folder}/{uuid.uuid4()}.parquet"
        self._stream: Any = output(self._place.properties, self.location).create()
        self._writer = pq.ParquetWriter(
            self._stream, self._schema(), compression=self._place.codec, store_decimal_as_integer=True
        )

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema(
            [
                pa.field(c.name, _type(c.type, c.element_id), not c.required, {_FIELD_ID: str(c.id)})
                for c in self._columns
            ]
        )

    def _arranged(self, table: pa.Table) -> pa.Table:
        import pyarrow as pa

        schema = self._schema()
        arrays = [
            table[c.source].cast(f.type) if c.source else pa.nulls(table.num_rows, f.type)
            for c, f in zip(self._columns, schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)


def by_partition(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[tuple[str, ...], pa.Table]]:
    """The rows of each partition, with its values as text.

    :param table: in the order of its partitions.
    :param names: its columns of partition values.
    """
    import numpy as np

    found = [table[name].to_numpy() for name in names]
    changes = [np.flatnonzero(np.diff(values)) + 1 for values in found]
    edges = sorted({0, table.num_rows, *(int(edge) for places in changes for edge in places)})
    for low, high in pairwise(edges):
        yield tuple(str(values[low]) for values in found), table.slice(low, high - low)


def told(result: str, *values: str | int | None) -> pa.RecordBatch:
    """One row of what a task tells.

    :param result: names and types of its columns, as ``mapInArrow`` takes them.
    """
    import pyarrow as pa

    columns = [column.split() for column in result.split(", ")]
    arrays = [pa.array([value], arrow_type(kind)) for value, (_, kind) in zip(values, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in columns])
