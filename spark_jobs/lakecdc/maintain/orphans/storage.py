"""The storage of a table, whose folders may be in several stores."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from lakecdc.iceberg.file_io import storage_properties
from lakecdc.iceberg.stored_files import FileIoStorage
from lakecdc.maintain.orphans.locations import in_s3
from lakecdc.maintain.orphans.s3 import S3Storage

if TYPE_CHECKING:
    from lakecdc.iceberg.stored_files import StoredFile
    from lakecdc.iceberg.table import IcebergTable


class TableStorage:
    """File access: in S3 with boto3, which handles many files at once, elsewhere with the table's FileIO."""

    def __init__(self, table: IcebergTable) -> None:
        self._table = table

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """List every file below a folder, in any order; empty if the folder does not exist.

        :raises VanishedError: a folder in it was deleted meanwhile.
        """
        return (self._s3 if in_s3(folder) else self._file_io).walk(folder)

    def find(self, locations: Collection[str]) -> dict[str, StoredFile]:
        """Return the current state of existing files, by location."""
        s3, others = _divided(locations)
        return (self._s3.find(s3) if s3 else {}) | self._file_io.find(others)

    def delete(self, locations: Collection[str]) -> int:
        """Delete files, ignoring missing ones.

        :return: number of files that could not be deleted.
        """
        s3, others = _divided(locations)
        return (self._s3.delete(s3) if s3 else 0) + (self._file_io.delete(others) if others else 0)

    @cached_property
    def _file_io(self) -> FileIoStorage:
        return FileIoStorage(self._table)

    @cached_property
    def _s3(self) -> S3Storage:
        return S3Storage(storage_properties(self._table))


def _divided(locations: Collection[str]) -> tuple[list[str], list[str]]:
    return [each for each in locations if in_s3(each)], [each for each in locations if not in_s3(each)]
