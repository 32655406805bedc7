"""The storage below a table, whose folders may be in several."""

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
    """Lists, finds and deletes files: in S3 by boto3, which does many at once, elsewhere by the table's FileIO."""

    def __init__(self, table: IcebergTable) -> None:
        self._table = table

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """Every file below a folder, in any order; none if there is no such folder.

        :raises VanishedError: some folder in it was deleted meanwhile.
        """
        return (self._s3 if in_s3(folder) else self._file_io).walk(folder)

    def find(self, locations: Collection[str]) -> dict[str, StoredFile]:
        """Those of the files that are there, as they are now, by location."""
        s3, others = _divided(locations)
        return (self._s3.find(s3) if s3 else {}) | self._file_io.find(others)

    def delete(self, locations: Collection[str]) -> int:
        """Delete files; one that is gone already is fine.

        :return: how many could not be deleted.
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
