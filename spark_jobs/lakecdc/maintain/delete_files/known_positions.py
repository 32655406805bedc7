"""Positions that deletion vectors and position-delete files name already, read without the data file.

A reader of Iceberg's would go through every row of the data files to tell which of them are deleted; their delete files
say so in a few bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecdc.iceberg.file_io import reaches, source
from lakecdc.iceberg.file_tasks import others_of
from lakecdc.maintain.delete_files.bitmaps import bitmap

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from lakecdc.iceberg.file_tasks import FileTask

_FORMATS = ("PUFFIN", "PARQUET")
#: pairs of data file and delete file, each of which a task opens
MAX_PAIRS = 20_000


@dataclass(frozen=True)
class PositionDeletes:
    """A position-delete file, or a deletion vector, as a task reads it.

    :param format: PUFFIN or PARQUET.
    :param offset: first byte of the vector; None in a Parquet file.
    :param length: bytes of the vector; None in a Parquet file.
    """

    location: str
    format: str
    offset: int | None = None
    length: int | None = None


def delete_files(tasks: Iterable[FileTask]) -> dict[int, tuple[PositionDeletes, ...]]:
    """The position deletes and deletion vectors that apply to each data file, by its number.

    :return: without data files that have some of another format, or where a task does not get to, and without any that
        have some if there are too many.
    """
    listing = list(tasks)
    found: dict[int, tuple[PositionDeletes, ...]] = {task.number: () for task in listing if not task.others}
    if sum(task.others for task in listing) > MAX_PAIRS:
        return found
    for number, others in others_of(listing).items():
        deletes = tuple(PositionDeletes(o.location, o.format, o.offset, o.length) for o in others)
        if all(map(_is_readable, deletes)):
            found[number] = deletes
    return found


def _is_readable(deletes: PositionDeletes) -> bool:
    return deletes.format in _FORMATS and reaches(deletes.location)


def read(deletes: Iterable[PositionDeletes], data_file: str, properties: Mapping[str, str]) -> BitMap64:
    """The positions that delete files name of a data file; what a task does.

    :param properties: pyiceberg settings of the table's FileIO.
    """
    from pyroaring import BitMap64

    found = BitMap64()
    for deletes_of_it in deletes:
        one = _vector if deletes_of_it.format == "PUFFIN" else _positions
        found |= one(deletes_of_it, data_file, properties)
    return found


def _vector(deletes: PositionDeletes, _: str, properties: Mapping[str, str]) -> BitMap64:
    from lakecdc.iceberg.puffin import decode_vector

    assert deletes.offset is not None and deletes.length is not None, "vectors are part of a Puffin file"
    with source(properties, deletes.location).open() as stream:
        stream.seek(deletes.offset)
        return decode_vector(stream.read(deletes.length))


def _positions(deletes: PositionDeletes, data_file: str, properties: Mapping[str, str]) -> BitMap64:
    """Those of one data file; the file may hold the positions of many (specification, "Position Delete Files")."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from pyroaring import BitMap64

    result = BitMap64()
    with source(properties, deletes.location).open() as stream:
        file = pq.ParquetFile(stream)
        for group in range(file.num_row_groups):
            found = file.read_row_group(group, columns=["file_path", "pos"], use_threads=False)
            result |= bitmap(found.filter(pc.equal(found["file_path"], data_file))["pos"].to_numpy())
    return result
