"""Tasks that find the places of rows by their keys, and read rows at places; apart from the driver's code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecdc.iceberg.file_io import source
from lakecdc.key_search.tasks import Lookup, Stored, live_rows, serialized
from lakecdc.reader.data_files import deleted_positions
from lakecdc.reader.parquet_files import parquet_file, rows_of_groups
from lakecdc.reader.projection import UnreadError
from lakecdc.runtime.worker import settle
from lakecdc.writer.files import slices

#: what a search returns: a table of the rows of a row group, serialized; or why a file could not be read
FOUND = "number int, part int, rows binary, unread string"
_FOUND = pa.schema([("number", pa.int32()), ("part", pa.int32()), ("rows", pa.binary()), ("unread", pa.string())])
#: rows of a row group to read, by their places in it
PART = "location string, part int, places binary"
_ROWS_BYTES = 8 * 1024**2


@dataclass(frozen=True)
class PlacesTask:
    """A task that finds the live rows of data files that have one of some keys.

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
        location, dead, count = file["location"], None, 0
        for hits in self.lookup.hits(file, self.stored, self.hidden, with_rows=True):
            if hits.group.number is None:
                raise UnreadError(f"{location} has no row groups")
            if not len(hits.positions) or hits.rows is None:
                continue
            count += len(hits.positions)
            if count > self.most:
                raise UnreadError(f"more than {self.most} rows of {location} have them")
            if dead is None:
                dead = deleted_positions(file["deletes"], location, self.stored.properties)
            places = pc.subtract(hits.positions, hits.group.begin)
            rows = hits.rows.append_column("position", hits.positions).append_column("place", places)
            if (live := live_rows(rows, hits.positions, dead)).num_rows:
                yield hits.group.number, live


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
            columns = self.stored.projection(parquet.schema_arrow, self.stored.columns)
            for rows in rows_of_groups(parquet, [part["part"]], columns):
                here = places[(places >= begin) & (places < begin + rows.num_rows)] - begin
                begin += rows.num_rows
                if len(here):
                    # the names of nested types' members differ, which a cast does not mind
                    yield columns(rows.take(pa.array(here))).cast(self.schema)
                if not len(places) or begin > places[-1]:
                    break
