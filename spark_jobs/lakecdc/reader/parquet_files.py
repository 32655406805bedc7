"""Read Parquet files in tasks: row groups in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakecdc.reader.projection import Projection, UnreadError

#: maximum number of rows decoded at once
MOST_ROWS = 131_072
# a page is decoded again for each table that begins in it
_TABLE_BYTES, _FEWEST_ROWS = 32 * 1024**2, 256
# maximum bytes of encoded columns at once; larger row groups are read piece by piece
_ENCODED_BYTES, _SMALLEST_PIECE = 64 * 1024**2, 256 * 1024
# in memory: of a value by physical type, and of the place of a text
_VALUE_BYTES, _OFFSET_BYTES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}, 4
_DICTIONARIES = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}
# bounds of more bytes may be cut off, as some writers do
_SURE_BYTES = 60


def rows_at_once(rows: int, size: int) -> int:
    """Return how many rows have about 32 MiB, from the size of some rows."""
    return min(max(_TABLE_BYTES * rows // max(size, 1), _FEWEST_ROWS), MOST_ROWS)


@dataclass(frozen=True)
class RowGroup:
    """Consecutive rows of a data file.

    :param number: of the Parquet row group; None in other files.
    :param begin: position of the first row; ``end`` is the position after the last.
    :param read: returns the projected rows.
    :param bounds: returns the lowest and the highest value of a column, by its place, if the file has them.
    """

    number: int | None
    begin: int
    end: int
    read: Callable[[], pa.Table]
    bounds: Callable[[int], tuple[Any, Any] | None]


def groups_without_bounds(batches: Iterable[tuple[int, pa.RecordBatch]], columns: Projection) -> Iterator[RowGroup]:
    """Yield stored rows of a file in another format, given with the position of the first, as row groups."""
    for begin, batch in batches:
        yield RowGroup(None, begin, begin + batch.num_rows, partial(columns, batch), lambda _: None)


class ParquetFile:
    """A Parquet data file; see :func:`parquet_file`."""

    def __init__(self, stream: Any, location: str) -> None:
        self._file = parquet_file(stream, location)
        self.rows, self.schema = self._file.metadata.num_rows, self._file.schema_arrow

    def batches(self, begin: int, end: int, columns: Projection) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield stored rows of the row groups that a range overlaps, about 32 MiB each, with their first position."""
        metadata = self._file.metadata
        ends = np.cumsum([0, *(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))])
        groups = [g for g, (b, e) in enumerate(pairwise(ends.tolist())) if b < end and e > begin and b < e]
        position = int(ends[groups[0]]) if groups else 0
        for batch in rows_of_groups(self._file, groups, columns):
            yield position, batch
            position += batch.num_rows
            if position >= end:
                break

    def groups(self, columns: Projection) -> Iterator[RowGroup]:
        """Yield all row groups with rows."""
        end = 0
        for number in range(self._file.metadata.num_row_groups):
            begin, end = end, end + self._file.metadata.row_group(number).num_rows
            if begin < end:
                read, bounds = partial(self._read, number, columns), partial(self._bounds, number, columns)
                yield RowGroup(number, begin, end, read, bounds)

    def _read(self, number: int, columns: Projection) -> pa.Table:
        try:
            stored = self._file.reader.read_row_group(number, column_indices=list(columns.leaves), use_threads=False)
        except NotImplementedError as error:
            raise UnreadError(f"Arrow cannot read a column: {error}") from error
        return pa.concat_tables([columns.schema.empty_table(), *map(columns, stored.to_batches())])

    def _bounds(self, number: int, columns: Projection, place: int) -> tuple[Any, Any] | None:
        leaf = columns.leaf(place)
        known = None if leaf is None else self._file.metadata.row_group(number).column(leaf).statistics
        return (known.min, known.max) if known is not None and known.has_min_max else None


def parquet_file(stream: Any, location: str) -> pq.ParquetFile:
    """Open a Parquet file.

    :raises UnreadError: Arrow cannot, because of its format or encryption.
    """
    try:
        metadata = pq.read_metadata(stream)
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        encoded = max((sum(g.column(c).total_compressed_size for c in range(g.num_columns)) for g in groups), default=0)
        piece = max(_SMALLEST_PIECE, _ENCODED_BYTES // max(1, metadata.num_columns)) if encoded > _ENCODED_BYTES else 0
        return pq.ParquetFile(
            stream, metadata=metadata, coerce_int96_timestamp_unit="us", buffer_size=piece, pre_buffer=False
        )
    except (pa.ArrowInvalid, NotImplementedError, OSError) as error:
        raise UnreadError(f"{location}: {error}") from error


def rows_of_groups(parquet: pq.ParquetFile, groups: list[int], columns: Projection) -> Iterator[pa.RecordBatch]:
    """Yield the stored columns of row groups, in batches that decode to about 32 MiB."""
    if not groups:
        return
    infos = [parquet.metadata.row_group(group) for group in groups]
    rows = sum(info.num_rows for info in infos)
    leaves = list(columns.leaves)
    try:
        size, unknown = 0, list[int]()
        for leaf in leaves:
            sizes = [_decoded_bytes(info.column(leaf)) for info in infos]
            size += sum(known or 0 for known in sizes)
            unknown += [leaf] if None in sizes else []
        if rows > _FEWEST_ROWS and unknown:
            first = next(parquet.reader.iter_batches(_FEWEST_ROWS, groups[:1], unknown, use_threads=False))
            size += first.nbytes * rows // first.num_rows
        yield from parquet.reader.iter_batches(rows_at_once(rows, size), groups, leaves, use_threads=False)
    except NotImplementedError as error:
        raise UnreadError(f"Arrow cannot read a column: {error}") from error


def _decoded_bytes(chunk: pq.ColumnChunkMetaData) -> int | None:
    """Estimate the bytes of a column's values in memory; None if only its values show it.

    A dictionary stores a value once that may repeat many times; a column's bounds tell how long its values are.
    """
    encoded, kind = chunk.total_uncompressed_size, chunk.physical_type
    if kind != "BYTE_ARRAY":
        return max(encoded, chunk.num_values * _VALUE_BYTES.get(kind, 16))
    if _DICTIONARIES.isdisjoint(chunk.encodings):
        return encoded
    bounds = chunk.statistics
    if bounds is None or not bounds.has_min_max:
        return None
    longest = max(len(value.encode() if isinstance(value, str) else value) for value in (bounds.min, bounds.max))
    return None if longest > _SURE_BYTES else max(encoded, chunk.num_values * (longest + _OFFSET_BYTES))
