"""Tasks that find the places of rows by their keys, and read rows at places; apart from the driver's code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from lakecdc.iceberg.file_io import source
from lakecdc.key_search.tasks import ROW_IDS, Lookup, identified, matches, serialized, without
from lakecdc.reader.data_files import DELETES, deleted_positions
from lakecdc.reader.parquet_files import parquet_file, rows_of_groups
from lakecdc.reader.projection import Projection, ReadColumn, UnreadError, projection
from lakecdc.runtime.worker import settle
from lakecdc.writer.files import slices

#: a data file to search
FILE = (
    f"number int, location string, scope int, sequence_number long, first_row_id long, records long, deletes {DELETES}"
)
#: what a search returns: a table of the rows of a row group, serialized; or why a file could not be read
FOUND = "number int, part int, rows binary, unread string"
_FOUND = pa.schema([("number", pa.int32()), ("part", pa.int32()), ("rows", pa.binary()), ("unread", pa.string())])
#: rows of a row group to read, by their places in it
PART = "location string, part int, places binary"
_ROWS_BYTES = 8 * 1024**2


@dataclass(frozen=True)
class Stored:
    """How columns of a table are stored.

    :param properties: pyiceberg settings of the table's FileIO; not shown, because they may contain credentials.
    :param name_mapping: of ``schema.name-mapping.default``, parsed.
    :param partitioned: field ids of columns whose values may be known from a partition alone.
    """

    columns: tuple[ReadColumn, ...]
    properties: Mapping[str, str] = field(repr=False)
    name_mapping: Sequence[Mapping[str, Any]] | None = None
    partitioned: frozenset[int] = frozenset()

    def projection(self, stored: pa.Schema, columns: Sequence[ReadColumn] = ()) -> Projection:
        """Return how the columns, or others, come from a file.

        :raises UnreadError: a column is stored in a form without certain meaning, or not in the file.
        """
        unknown: dict[int, Any] = dict.fromkeys(self.partitioned, {})
        return projection(stored, columns or self.columns, self.name_mapping, unknown)


@dataclass(frozen=True)
class PlacesTask:
    """A task that finds the live rows of data files that have one of some keys.

    :param stored: columns that will be read of the rows; a file that lacks one with a certain meaning is not searched.
    :param hidden: keys that live equality deletes of the table delete.
    :param most: rows of a file that may be found; those of keys that are not unique may be too many for the driver.
    """

    lookup: Lookup
    stored: Stored
    hidden: Lookup | None
    most: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for file in (row for batch in batches for row in batch.to_pylist()):
            try:
                number = file["number"]
                found = [{"number": number, "part": p, "rows": serialized(rows)} for p, rows in self._rows(file)]
            except UnreadError as error:
                found = [{"number": file["number"], "unread": str(error)}]
            yield pa.RecordBatch.from_pylist(found, _FOUND)

    def _rows(self, file: Mapping[str, Any]) -> Iterator[tuple[int, pa.Table]]:
        """Yield keys, ids, positions in the file and places in the row group of the live rows of each row group."""
        keys = self.lookup.applying(file)
        if self.hidden is not None:
            keys = without(keys, self.hidden.applying(file))
        if not keys.num_rows:
            return
        location, properties, dead, count = file["location"], self.stored.properties, None, 0
        with source(properties, location).open() as stream:
            parquet = parquet_file(stream, location)
            if parquet.metadata.num_rows != file["records"]:
                raise UnreadError(f"{location} has {parquet.metadata.num_rows} rows, not {file['records']}")
            self.stored.projection(parquet.schema_arrow)
            columns = self.stored.projection(parquet.schema_arrow, [*self.lookup.columns, ROW_IDS])
            for part, begin, positions, rows in matches(parquet, columns, keys):
                if not len(positions):
                    continue
                count += len(positions)
                if count > self.most:
                    raise UnreadError(f"more than {self.most} rows of {location} have them")
                if dead is None:
                    dead = deleted_positions(file["deletes"], location, properties)
                places = positions.to_numpy()
                found = identified(rows, positions, file)
                found = found.append_column("position", positions).append_column("place", pa.array(places - begin))
                if dead:
                    found = found.filter(pa.array([place not in dead for place in places.tolist()], pa.bool_()))
                if found.num_rows:
                    yield part, found


@dataclass(frozen=True)
class RowsTask:
    """A task that reads rows at places; its input are rows of :data:`PART`.

    :param schema: of the columns, as Spark takes them.
    """

    stored: Stored
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        parts = (row for batch in batches for row in batch.to_pylist())
        for rows in slices((rows for part in parts for rows in self._rows(part)), _ROWS_BYTES):
            yield from rows.combine_chunks().to_batches()

    def _rows(self, part: Mapping[str, Any]) -> Iterator[pa.Table]:
        places, begin = np.frombuffer(part["places"], "int64"), 0
        with source(self.stored.properties, part["location"]).open() as stream:
            parquet = parquet_file(stream, part["location"])
            columns = self.stored.projection(parquet.schema_arrow)
            for rows in rows_of_groups(parquet, [part["part"]], columns):
                here = places[(places >= begin) & (places < begin + rows.num_rows)] - begin
                begin += rows.num_rows
                if len(here):
                    # the names of nested types' members differ, which a cast does not mind
                    yield columns(rows.take(pa.array(here))).cast(self.schema)
                if not len(places) or begin > places[-1]:
                    break
