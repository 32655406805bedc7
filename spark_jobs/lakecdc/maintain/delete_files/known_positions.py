"""Positions in existing deletion vectors and position-delete files, read without the data file.

Iceberg's reader would scan every row of the data files to find the deleted ones; their delete files contain them in a
few bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.iceberg.file_io import reaches, source
from lakecdc.iceberg.file_tasks import others_of
from lakecdc.writer.deletes import bitmap

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from lakecdc.iceberg.file_tasks import FileTask

_FORMATS = ("PUFFIN", "PARQUET")
#: maximum number of pairs of data file and delete file, each opened by a task
MAX_PAIRS = 20_000


@dataclass(frozen=True)
class PositionDeletes:
    """A position-delete file or deletion vector as a task reads it.

    :param format: PUFFIN or PARQUET.
    :param offset: first byte of the vector; None in a Parquet file.
    :param length: bytes of the vector; None in a Parquet file.
    """

    location: str
    format: str
    offset: int | None = None
    length: int | None = None


def delete_files(tasks: Iterable[FileTask]) -> dict[int, tuple[PositionDeletes, ...]]:
    """Return the position deletes and deletion vectors of each data file, by its number.

    :return: without data files that have deletes of another format or out of a task's reach, and, if there are too many
        pairs, without any that have deletes.
    """
    listing = list(tasks)
    by_number: dict[int, tuple[PositionDeletes, ...]] = {task.number: () for task in listing if not task.others}
    if sum(task.others for task in listing) > MAX_PAIRS:
        return by_number
    for number, others in others_of(listing).items():
        deletes = tuple(PositionDeletes(o.location, o.format, o.offset, o.length) for o in others)
        if all(map(_is_readable, deletes)):
            by_number[number] = deletes
    return by_number


def _is_readable(deletes: PositionDeletes) -> bool:
    return deletes.format in _FORMATS and reaches(deletes.location)


def read(deletes: Iterable[PositionDeletes], data_file: str, properties: Mapping[str, str]) -> BitMap64:
    """Read the deleted positions of a data file in a task.

    :param properties: pyiceberg settings of the table's FileIO.
    """
    from pyroaring import BitMap64

    positions = BitMap64()
    for deletes_of_it in deletes:
        one = _vector if deletes_of_it.format == "PUFFIN" else _positions
        positions |= one(deletes_of_it, data_file, properties)
    return positions


def _vector(deletes: PositionDeletes, _: str, properties: Mapping[str, str]) -> BitMap64:
    from lakecdc.iceberg.puffin import decode_vector

    assert deletes.offset is not None and deletes.length is not None, "vectors are part of a Puffin file"
    with source(properties, deletes.location).open() as stream:
        stream.seek(deletes.offset)
        return decode_vector(stream.read(deletes.length))


def _positions(deletes: PositionDeletes, data_file: str, properties: Mapping[str, str]) -> BitMap64:
    """Read the positions of one of possibly many data files (specification, "Position Delete Files")."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from pyroaring import BitMap64

    result = BitMap64()
    with source(properties, deletes.location).open() as stream:
        file = pq.ParquetFile(stream)
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=["file_path", "pos"], use_threads=False)
            result |= bitmap(rows.filter(pc.equal(rows["file_path"], data_file))["pos"].to_numpy())
    return result
