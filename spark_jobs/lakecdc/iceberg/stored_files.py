"""Files below a location as the table's FileIO lists them, whether the table knows them or not."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import ConflictError, UnsupportedError
from lakecdc.iceberg.jvm import java_causes, java_class_name, java_list, java_message, jvm
from lakecdc.metadata.locations import canonical

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable

# Java's and Iceberg's exceptions
_MISSING = ("FileNotFoundException", "NoSuchFileException", "NotFoundException")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in storage: its location with scheme and authority, its size, and its time in ms since 1970."""

    location: str
    bytes: int
    modified_ms: int


class VanishedError(ConflictError):
    """A file or folder was deleted after it was listed."""


class FileIoStorage:
    """File access through the table's FileIO, which has the credentials."""

    def __init__(self, table: IcebergTable) -> None:
        self._table = table
        self._io: Any = table.java.io()

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """Yield every file below a folder, in any order; none if the folder does not exist.

        :raises VanishedError: a folder in it was deleted meanwhile.
        :raises UnsupportedError: the FileIO cannot list.
        """
        try:
            files = self._io.listPrefix(folder).iterator()
        except Exception as error:
            if _is_missing(error):
                return
            if java_class_name(error) is None:
                name = self._io.getClass().getSimpleName()
                raise UnsupportedError(f"Its FileIO, {name}, cannot list files.", table=self._table.name) from error
            raise
        with vanished_errors(self._table):
            while files.hasNext():
                file = files.next()
                yield StoredFile(str(file.location()), int(file.size()), int(file.createdAtMillis()))

    def find(self, locations: Collection[str]) -> dict[str, StoredFile]:
        """Return the current state of existing files, by location."""
        # object stores also list longer names
        return {at: file for at in locations for file in self.walk(at) if canonical(file.location) == canonical(at)}

    def delete(self, locations: Collection[str]) -> int:
        """Delete files, ignoring missing ones; return the number that could not be deleted."""
        try:
            self._io.deleteFiles(java_list(self._table.spark, locations))
        except Exception as error:
            if java_class_name(error) != "BulkDeletionFailureException":
                raise
            return int(error.java_exception.numberFailedObjects())  # type: ignore[attr-defined]
        return 0


def move(table: IcebergTable, source: str, target: str) -> bool:
    """Move a file of a Hadoop or local file system; return false if it is gone or its target exists."""
    view = jvm(table.spark)
    before, after = view.org.apache.hadoop.fs.Path(source), view.org.apache.hadoop.fs.Path(target)
    system = before.getFileSystem(table.spark._jsc.hadoopConfiguration())
    if system.exists(after) or not system.exists(before):
        return False
    system.mkdirs(after.getParent())
    return bool(system.rename(before, after))


def delete_folder(table: IcebergTable, folder: str) -> None:
    """Delete everything below a folder of a Hadoop or local file system, if it exists."""
    try:
        table.java.io().deletePrefix(folder)
    except Exception as error:
        if not _is_missing(error):
            raise


def read_bytes(table: IcebergTable, location: str, size: int | None = None) -> bytes:
    """Read a file's content, at most ``size`` bytes.

    :raises VanishedError: the file does not exist.
    """
    with vanished_errors(table), closing(table.java.io().newInputFile(location).newStream()) as stream:
        return bytes(stream.readAllBytes() if size is None else stream.readNBytes(size))


def write_bytes(table: IcebergTable, location: str, content: bytes) -> None:
    """Write a small file, replacing an existing one."""
    with closing(table.java.io().newOutputFile(location).createOrOverwrite()) as stream:
        stream.write(content)


@contextmanager
def vanished_errors(table: IcebergTable) -> Iterator[None]:
    """Read or list files that others may delete.

    :raises VanishedError: one is gone.
    """
    try:
        yield
    except Exception as error:
        if _is_missing(error):
            hint = "It was deleted meanwhile; run again."
            raise VanishedError(java_message(error), table=table.name, hint=hint) from error
        raise


def _is_missing(error: Exception) -> bool:
    # some of Iceberg's file systems wrap it; Hadoop reads local permissions with a command, and reports its output
    return java_class_name(error) is not None and any(
        str(cause.getClass().getSimpleName()) in _MISSING or "No such file or directory" in str(cause.getMessage())
        for cause in java_causes(error)
    )
