"""Writing a batch that the native engine holds packed: its tasks write the files of rows and of keys themselves."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.iceberg import definition
from lakecdc.iceberg.file_io import discard_folder, new_folder, storage_properties
from lakecdc.iceberg.written_files import WrittenFile, data_file, equality_delete
from lakecdc.ingest.formats.native import packing
from lakecdc.ingest.formats.native.exact import arrow_type
from lakecdc.ingest.formats.native.fold import columns
from lakecdc.ingest.formats.native.grouping import grouping
from lakecdc.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.apply.publish import Staged
    from lakecdc.ingest.change import TableBatch
    from lakecdc.ingest.formats.native import Packed

_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "uncompressed": "none"}
_CODEC = "write.parquet.compression-codec"
# file systems that Java and pyiceberg name alike
_SCHEMES = ("", "file", "s3", "s3a")
# settings of Iceberg's own writer that this one does not know
_OTHER_FORMAT, _BLOOM = "write.format.default", "write.parquet.bloom-filter-enabled."
# rows one file is worth without partitions; more files only make more small ones
_ROWS_PER_FILE = 250_000
_RESULT = "location string, keys boolean, bytes bigint, partition string"


def untouched(batch: TableBatch, rows: DataFrame | None) -> Packed | None:
    """Where rows come from, if they are just what the tasks hold packed."""
    packed = batch.packed
    return packed if packed is not None and rows is packed.changes else None


def can_be_written(table: IcebergTable, batch: TableBatch, packed: Packed, live_specs: list[int]) -> bool:
    """Tell whether tasks can write the files: what they do not know about is left to Iceberg's own writer."""
    current, properties = definition.current_spec_id(table), table.properties
    types = {f.name: f.type for f in packed.fields}
    expressions = definition.partition_expressions(table, current)
    known = grouping(expressions, batch.key, [types[k] for k in batch.key], 1)
    return (
        packed.folded
        and importlib.util.find_spec("pyiceberg") is not None
        and not set(live_specs) - {current}
        and known.buckets is not None
        and known.buckets == packed.grouping.buckets
        and len(known.buckets) == table.java.specs().get(current).fields().size()
        and properties.get(_CODEC, "zstd") in _CODECS
        and properties.get(_OTHER_FORMAT, "parquet") == "parquet"
        and not any(name.startswith(_BLOOM) for name in properties)
        and not table.is_encrypted
        and urlsplit(table.location).scheme in _SCHEMES
        and all(arrow_type(kind) is not None for kind in _spark_types(table).values())
    )


def stage(table: IcebergTable, batch: TableBatch, packed: Packed, staged: Staged, *, deletes: bool) -> None:
    """Write the rows as data files and all keys as equality deletes, uncommitted, in one pass.

    :param staged: takes the files.
    :param deletes: whether the table has files that keys are to be deleted from.
    """
    folder, spec_id = new_folder(table, "ingest"), definition.current_spec_id(table)
    task = WriteTask(
        folder,
        storage_properties(table),
        _CODECS[table.properties.get(_CODEC, "zstd")],
        _columns(table, packed),
        tuple(_key_columns(table, batch)) if deletes else (),
    )
    try:
        found = _cells(packed).mapInArrow(task, _RESULT).collect()
        for row in found:
            written = WrittenFile(row["location"], row["bytes"], tuple(json.loads(row["partition"])))
            if row["keys"]:
                staged.delete_files.append(equality_delete(table, written, spec_id, batch.key))
            else:
                staged.data_files.append(data_file(table, written, spec_id))
    except BaseException:
        discard_folder(table, folder)
        raise


def _cells(packed: Packed) -> DataFrame:
    """The packed tables, in as many tasks as files are wanted where there are no partitions to tell."""
    cells = packed.frame.select("packed")
    return cells if packed.grouping.buckets else cells.coalesce(max(1, -(-packed.facts.keys // _ROWS_PER_FILE)))


@dataclass(frozen=True)
class FileColumn:
    """A column of a file to be written.

    :param id: Iceberg field id.
    :param type: Spark SQL type.
    :param source: name of the packed column; None for one that the source does not have.
    """

    id: int
    name: str
    type: str
    required: bool
    source: str | None


def _columns(table: IcebergTable, packed: Packed) -> tuple[FileColumn, ...]:
    own = {ORDER_COLUMN: "order", TIME_COLUMN: "time_us"}
    places = {f.name: f"c{i}" for i, f in enumerate(packed.fields)} | own
    types = _spark_types(table)
    return tuple(FileColumn(f.id, f.name, types[f.name], f.required, places.get(f.name)) for f in table.fields)


def _key_columns(table: IcebergTable, batch: TableBatch) -> Iterator[FileColumn]:
    types, fields = _spark_types(table), {f.name: f for f in table.fields}
    for place, name in enumerate(batch.key):
        yield FileColumn(fields[name].id, name, types[name], fields[name].required, f"k{place}")


def _spark_types(table: IcebergTable) -> dict[str, str]:
    return {f.name: f.dataType.simpleString() for f in table.spark.table(table.sql_name).schema.fields}


@dataclass(frozen=True)
class WriteTask:
    """Packed cells in, one row per written file out.

    :param folder: location below which it writes.
    :param properties: pyiceberg settings of the table's FileIO; not shown, they may hold credentials.
    :param codec: pyarrow's name of the compression.
    :param rows: columns of the files of rows.
    :param keys: columns of the files of keys; none if no such files are wanted.
    """

    folder: str
    properties: Mapping[str, str] = field(repr=False)
    codec: str
    rows: tuple[FileColumn, ...]
    keys: tuple[FileColumn, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the files of one partition after another; rows arrive in the order of partitions."""
        settle()
        current: _Partition | None = None
        for table in packing.all_of(batches):
            for values, part in _by_partition(table):
                if current is not None and current.values != values:
                    yield from current.close()
                    current = None
                current = current or _Partition(self, values)
                current.write(part)
        if current is not None:
            yield from current.close()


def _by_partition(table: pa.Table) -> Iterator[tuple[tuple[str, ...], pa.Table]]:
    import numpy as np

    names = columns(table, "p")
    found = [table[name].to_numpy() for name in names]
    changes = [np.flatnonzero(np.diff(values)) + 1 for values in found]
    edges = sorted({0, table.num_rows, *(int(edge) for places in changes for edge in places)})
    for low, high in pairwise(edges):
        yield tuple(str(values[low]) for values in found), table.slice(low, high - low)


class _Partition:
    """The files of one partition."""

    def __init__(self, task: WriteTask, values: tuple[str, ...]) -> None:
        self.values, self._task = values, task
        self._files = {False: _File(task, task.rows), True: _File(task, task.keys)}

    def write(self, table: pa.Table) -> None:
        """Add rows, and the keys of all."""
        import pyarrow.compute as pc

        self._files[False].write(table.filter(pc.not_equal(table["op"], "d")))
        if self._task.keys:
            self._files[True].write(table)

    def close(self) -> Iterator[pa.RecordBatch]:
        """Finish the files and tell them."""
        import pyarrow as pa

        for keys, file in self._files.items():
            if file.location is not None:
                row = [file.location, keys, file.close(), json.dumps(self.values)]
                arrays = [pa.array([value]) for value in row]
                yield pa.RecordBatch.from_arrays(arrays, ["location", "keys", "bytes", "partition"])


class _File:
    """One Parquet file, made when the first row comes."""

    def __init__(self, task: WriteTask, columns: tuple[FileColumn, ...]) -> None:
        self._task, self._columns = task, columns
        self.location: str | None = None

    def write(self, table: pa.Table) -> None:
        """Add rows."""
        if table.num_rows:
            if self.location is None:
                self._open()
            self._writer.write_table(self._arranged(table))

    def close(self) -> int:
        """Finish the file.

        :return: its size.
        """
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        return size

    def _open(self) -> None:
        import uuid

        import pyarrow.parquet as pq

        from lakecdc.iceberg.file_io import output

        self.location = f"{self._task.folder}/{uuid.uuid4()}.parquet"
        self._stream: Any = output(self._task.properties, self.location).create()
        self._writer = pq.ParquetWriter(
            self._stream, self._schema(), compression=self._task.codec, store_decimal_as_integer=True
        )

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema(
            [
                pa.field(c.name, arrow_type(c.type), not c.required, {"PARQUET:field_id": str(c.id)})
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
