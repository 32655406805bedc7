"""Read the live rows of data files in Python tasks: deletes applied, in file order, in bounded memory."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.iceberg.file_io import reaches, source
from lakecdc.iceberg.puffin import bitmap, decode_vector
from lakecdc.metadata.names import PATH_ID, POSITION_ID, ROW_ID, ROW_ID_ID, UPDATED, UPDATED_ID
from lakecdc.model.iceberg_columns import UnknownTypeError
from lakecdc.reader.avro_files import AvroFile
from lakecdc.reader.orc_files import OrcFile
from lakecdc.reader.parquet_files import ParquetFile
from lakecdc.reader.projection import ReadColumn, UnreadError, projection, read_columns

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from lakecdc.iceberg.table import IcebergTable

#: Spark SQL type of the position deletes and vectors that apply to a data file
DELETES = "array<struct<location: string, format: string, offset: bigint, length: bigint>>"
#: DDL of the rows that describe data files to tasks; ``constants`` is JSON: identity partition values by field id
FILE = (
    "number int, location string, first_row_id bigint, sequence_number bigint, records bigint, constants string, "
    f"deletes {DELETES}"
)
#: columns of row lineage that files may store
LINEAGE = (ReadColumn(ROW_ID_ID, ROW_ID, "long", False), ReadColumn(UPDATED_ID, UPDATED, "long", False))
# columns of position-delete files, which writers other than Iceberg's store without ids
_POSITION_DELETE = (ReadColumn(PATH_ID, "file_path", "string", True), ReadColumn(POSITION_ID, "pos", "long", True))
_NAMES = [{"field-id": column.id, "names": [column.name]} for column in _POSITION_DELETE]
# file systems that Java and pyiceberg name alike
_SCHEMES = ("", "file", "s3", "s3a")


def refusal(table: IcebergTable) -> str | None:
    """Return why Iceberg's own reader and writer have to handle a table's files; None if tasks can."""
    if importlib.util.find_spec("pyiceberg") is None:
        return "pyiceberg is not installed"
    if table.is_encrypted:
        return "the table is encrypted"
    for column in read_columns(table.schema_fields):
        try:
            column.field()
        except UnknownTypeError as error:
            return f"column {column.name} is {error}"
    return None


def in_reach(location: str) -> bool:
    """Check whether tasks can read and write a location."""
    return urlsplit(location).scheme in _SCHEMES and reaches(location)


def data_file(stream: Any, location: str) -> ParquetFile | OrcFile | AvroFile:
    """Open a data file or delete file; if its name does not end with another format, it is Parquet.

    :raises UnreadError: tasks cannot read it.
    """
    if location.endswith(".orc"):
        return OrcFile(stream, location)
    return AvroFile(stream, location) if location.endswith(".avro") else ParquetFile(stream, location)


@dataclass
class FileRows:
    """The live rows of a data file, or of a range of it, in the columns of a table.

    After iteration, ``rows`` and ``deleted`` are the numbers of live and deleted rows of the range.

    :param file: described as in :data:`FILE`.
    :param properties: pyiceberg settings of the table's FileIO; not shown, because they may contain credentials.
    :param lineage: whether to add the columns of row lineage.
    :param begin: position of the first row.
    :param end: position after the last row; None for the file's end.
    :param name_mapping: the table property ``schema.name-mapping.default``.
    """

    file: Mapping[str, Any]
    columns: Sequence[ReadColumn]
    properties: Mapping[str, str] = field(repr=False)
    lineage: bool = False
    begin: int = 0
    end: int | None = None
    name_mapping: str | None = None
    rows: int = field(default=0, init=False)
    deleted: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield tables of about 32 MiB.

        :raises UnreadError: the file has to be read by Iceberg's own reader.
        """
        self.rows = self.deleted = 0
        end = self.file["records"] if self.end is None else self.end
        dead = self._dead()
        for begin, rows in self._stored(end):
            first, last = max(self.begin - begin, 0), min(end - begin, rows.num_rows)
            if first >= last:
                continue
            live = self._live(dead, begin + first, begin + last)
            rows = self._with_lineage(rows, begin).slice(first, last - first)
            live_rows = rows if live is None else rows.filter(live)
            self.rows += live_rows.num_rows
            self.deleted += rows.num_rows - live_rows.num_rows
            if live_rows.num_rows:
                yield live_rows

    def _dead(self) -> Any:
        """Return the ascending positions of deleted rows."""
        positions = deleted_positions(self.file["deletes"] or (), self.file["location"], self.properties)
        return np.frombuffer(positions.to_array(), "int64")

    def _live(self, dead: Any, begin: int, end: int) -> pa.Array | None:
        """Return a mask of the live rows of a range, or None if all are."""
        first, last = np.searchsorted(dead, (begin, end))
        if first == last:
            return None
        live = np.ones(end - begin, "bool")
        live[dead[first:last] - begin] = False
        return pa.array(live)

    def _stored(self, end: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield the projected rows of a range and some rows around it, with the position of the first."""
        location = self.file["location"]
        if not in_reach(location):
            raise UnreadError(f"tasks cannot read {location}")
        with source(self.properties, location).open() as stream:
            file = data_file(stream, location)
            if file.rows != self.file["records"]:
                raise UnreadError(f"{location} has {file.rows} rows, not {self.file['records']}")
            mapping, constants = self.name_mapping, self.file["constants"]
            columns = projection(
                file.schema,
                [*self.columns, *(LINEAGE if self.lineage else ())],
                json.loads(mapping) if mapping else None,
                {int(key): value for key, value in json.loads(constants).items()} if constants else None,
            )
            for begin, batch in file.batches(self.begin, end, columns):
                yield begin, columns(batch)

    def _with_lineage(self, rows: pa.Table, begin: int) -> pa.Table:
        """Fill missing ids and sequence numbers of rows from those of the file (specification, "Row Lineage")."""
        if not self.lineage:
            return rows
        first, newest, schema = self.file["first_row_id"], self.file["sequence_number"], rows.schema
        inherited = [pa.nulls(rows.num_rows, pa.int64())] * 2
        if first is not None:
            start = first + begin
            inherited = [pa.array(np.arange(start, start + rows.num_rows)), pa.scalar(newest, pa.int64())]
        own = [rows.column(place) for place in range(rows.num_columns - 2)]
        filled = [
            pc.coalesce(stored, value) if first is not None else value
            for stored, value in zip(rows.columns[-2:], inherited, strict=True)
        ]
        return pa.Table.from_arrays([*own, *filled], schema=schema)


def deleted_positions(
    delete_files: Iterable[Mapping[str, Any]], data_file: str, properties: Mapping[str, str]
) -> BitMap64:
    """Return a data file's deleted positions, from vectors and from delete files that may cover many data files.

    :param delete_files: described as in :data:`DELETES`.
    """
    from pyroaring import BitMap64

    positions = BitMap64()
    for deletes in delete_files:
        location, settings = deletes["location"], tuple(sorted(properties.items()))
        if deletes["format"] == "PUFFIN":
            with source(properties, location).open() as stream:
                stream.seek(deletes["offset"])
                positions |= decode_vector(stream.read(deletes["length"]))
        else:
            positions |= _positions_by_file(location, settings).get(data_file, BitMap64())
    return positions


# a task reads many data files with the same delete file
@lru_cache(maxsize=4)
def _positions_by_file(location: str, settings: tuple[tuple[str, str], ...]) -> Mapping[str, BitMap64]:
    from pyroaring import BitMap64

    by_file: dict[str, BitMap64] = {}
    with source(dict(settings), location).open() as stream:
        file = data_file(stream, location)
        columns = projection(file.schema, _POSITION_DELETE, _NAMES)
        for rows in (rows for _, batch in file.batches(0, file.rows, columns) for rows in columns(batch).to_batches()):
            paths = pc.dictionary_encode(rows.column(0))
            numbers, names = paths.indices.to_numpy(), paths.dictionary.to_pylist()
            positions = rows.column(1).to_numpy()
            edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
            for begin, end in pairwise(edges):
                if begin < end:
                    of_file = by_file.setdefault(names[numbers[begin]], BitMap64())
                    of_file |= bitmap(positions[begin:end])
    return by_file
