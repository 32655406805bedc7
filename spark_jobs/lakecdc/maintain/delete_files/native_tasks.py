"""Tasks of the native engine; apart from the driver's code, which workers need not import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.file_io import source
from lakecdc.maintain.delete_files.key_lookup import KeyColumn, Lookup, UnreadError, packed, read_keys
from lakecdc.runtime.worker import settle
from lakecdc.writer.deletes import FilePositions, bitmap, described, without_unchanged

if TYPE_CHECKING:
    import pyarrow as pa
    from pyroaring import BitMap64

    from lakecdc.writer.deletes import Target, Writer

#: what :class:`KeysTask` returns: packed keys, and the numbers of the delete files that it could not read
KEYS = "keys binary, unread array<int>"


@dataclass(frozen=True)
class ConvertTask:
    """A task that reads data files and returns one row per written delete file or unreadable data file."""

    lookups: tuple[Lookup, ...]
    target: Target
    writer: Writer

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        unread: list[int] = []
        files = (
            positions for batch in batches for row in batch.to_pylist() for positions in self._positions(row, unread)
        )
        written = list(self.writer(without_unchanged(files, self.target.merge), self.target))
        yield described(written, unread)

    def _positions(self, row: Mapping[str, Any], unread: list[int]) -> Iterator[FilePositions]:
        from pyroaring import BitMap64

        number, hit = row["number"], BitMap64()
        try:
            for lookup in self.lookups:
                for positions in lookup.hits(row, self.target.properties):
                    hit |= bitmap(positions.to_numpy())
        except UnreadError:
            unread.append(number)
            return
        if hit or number in self.target.merge:
            yield FilePositions(number, _known_positions(row["known"], row["location"], self.target.properties), hit)


@dataclass(frozen=True)
class KeysTask:
    """A task that reads delete files and returns all their keys.

    :param properties: pyiceberg settings of the table's FileIO; not shown, because they may contain credentials.
    """

    columns: tuple[KeyColumn, ...]
    properties: Mapping[str, str] = field(repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        settle()
        tables, unread = [], []
        for file in (row for batch in batches for row in batch.to_pylist()):
            try:
                tables.append(read_keys(file["location"], self.columns, self.properties, file))
            except UnreadError:
                unread.append(file["number"])
        keys = packed(tables, self.columns)
        yield pa.RecordBatch.from_pydict(
            {"keys": pa.array([keys], pa.binary()), "unread": pa.array([unread], pa.list_(pa.int32()))}
        )


def _known_positions(
    delete_files: Iterable[Mapping[str, Any]], data_file: str, properties: Mapping[str, str]
) -> BitMap64:
    """Read a data file's positions in vectors and delete files of possibly many data files (specification)."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from pyroaring import BitMap64

    from lakecdc.iceberg.puffin import decode_vector

    positions = BitMap64()
    for deletes in delete_files:
        with source(properties, deletes["location"]).open() as stream:
            if deletes["format"] == "PUFFIN":
                stream.seek(deletes["offset"])
                positions |= decode_vector(stream.read(deletes["length"]))
                continue
            file = pq.ParquetFile(stream)
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=["file_path", "pos"], use_threads=False)
                positions |= bitmap(rows.filter(pc.equal(rows["file_path"], data_file))["pos"].to_numpy())
    return positions
