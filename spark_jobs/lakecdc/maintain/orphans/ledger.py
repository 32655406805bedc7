"""Move files to the trash, restore them, or delete them for good; each file is recorded before it is touched.

On a file system files are moved; an object store cannot move files, so there they are only marked for deletion.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.jvm import java_message
from lakecdc.iceberg.neighbours import folders
from lakecdc.iceberg.stored_files import StoredFile, delete_folder, move, read_bytes, write_bytes
from lakecdc.iceberg.table import IcebergTable
from lakecdc.maintain.orphans.reachable import Reachable
from lakecdc.maintain.orphans.search import FOLDER, apart
from lakecdc.maintain.orphans.storage import TableStorage
from lakecdc.metadata.locations import in_object_store, is_surely_below, relative

log = logging.getLogger(__name__)
_VERSION = 1
_RUN = re.compile(r"[\w-]+", re.ASCII)
# counts of a run: files trashed (moved or marked); restored; deleted; restored or unmarked because they are in use
# again or were overwritten; and not moved or deleted, which the log names
_COUNTED = ("taken", "restored", "deleted", "spared", "failed")


@dataclass(frozen=True)
class TrashedFile:
    """A file in the trash; ``moved_to`` is None if it is only marked for deletion."""

    location: str
    bytes: int
    modified_ms: int
    moved_to: str | None = None


@dataclass(frozen=True)
class Batch:
    """Files that were trashed together.

    :param document: location of its record.
    :param at_ms: milliseconds since 1970.
    :param table_uuid: of the table that the files belonged to.
    """

    document: str
    run: str
    at_ms: int
    table_uuid: str
    files: tuple[TrashedFile, ...]


class Ledger:
    """The batches of a table, one small document each below its location, and its folders, without nested folders."""

    def __init__(self, table: IcebergTable, storage: TableStorage) -> None:
        self._table, self._storage = table, storage
        self._folder = f"{table.location.rstrip('/')}/{FOLDER}/runs"
        self.folders = apart(folders(table.location, table.properties))

    def batches(self, run: str | None = None) -> Iterator[Batch]:
        """Yield the batches of one run or all that are neither restored nor deleted, oldest first."""
        for document in self._documents(run):
            batch = self._read(document)
            if batch is not None:
                yield batch

    def is_over(self, run: str) -> bool:
        """Check whether no document of a run is left, not even an unreadable one."""
        return not self._documents(run)

    def write(self, run: str, number: int, at_ms: int, files: Sequence[TrashedFile]) -> Batch:
        """Record files before they are trashed."""
        return self._written(Batch(f"{number:06d}", run, at_ms, self._table.uuid, tuple(files)))

    def without(self, batch: Batch, over: Collection[TrashedFile]) -> Batch:
        """Remove files from a batch, and the batch when it is empty."""
        if not over:
            return batch
        left = dataclasses.replace(batch, files=tuple(file for file in batch.files if file not in over))
        # the old document is deleted once the new one is complete: both are correct
        left = self._written(left) if left.files else left
        self._storage.delete([batch.document])
        return left

    def trash(self, location: str, run: str) -> str | None:
        """Return where a run moves a file of the table, or None if the file stays; raise ValueError for other files."""
        folder = next((each for each in self.folders if is_surely_below(location, each)), None)
        name = relative(location, folder) if folder else f"{FOLDER}/"
        if name.startswith(f"{FOLDER}/"):
            raise ValueError(f"{location} is not below the table's folders.")
        # keep the scheme of the storage listing
        return None if in_object_store(location) else f"{location.removesuffix(name)}{FOLDER}/files/{run}/{name}"

    def _documents(self, run: str | None) -> list[str]:
        listed = (file.location for file in self._storage.walk(self._folder))
        return sorted(each for each in listed if run is None or relative(each, self._folder).startswith(f"{run}/"))

    def _written(self, batch: Batch) -> Batch:
        number = batch.document.rpartition("/")[2].partition("-")[0]
        document = f"{self._folder}/{batch.run}/{number}-{uuid.uuid4().hex[:8]}.json"
        content = {
            "version": _VERSION,
            "table": self._table.name,
            "table_uuid": batch.table_uuid,
            "run": batch.run,
            "at_ms": batch.at_ms,
            "files": [dataclasses.asdict(file) for file in batch.files],
        }
        write_bytes(self._table, document, json.dumps(content, indent=1).encode())
        return dataclasses.replace(batch, document=document)

    def _read(self, document: str) -> Batch | None:
        try:
            document_read = json.loads(read_bytes(self._table, document))
        except ValueError:
            # incomplete: its run died before it moved a file
            log.warning("%s: %s cannot be read and is skipped", self._table.name, document)
            return None
        try:
            return self._checked(document, document_read)
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"{document} is not a list of files that a run trashed from this table: {error}",
                table=self._table.name,
                hint="No file that it names was touched. Find out who wrote it, then remove the document. If the "
                "table's location or write.data.path has changed since, restore the files by hand first.",
            ) from error

    def _checked(self, document: str, content: Any) -> Batch:
        """Parse a document; raise ValueError, TypeError or KeyError if the run cannot have trashed these files."""
        run = relative(document, self._folder).rpartition("/")[0]
        if not _RUN.fullmatch(run) or content["run"] != run:
            raise ValueError(f"its run is {content['run']!r}.")
        files = tuple(TrashedFile(**file) for file in content["files"])
        for file in files:
            if file.moved_to != self.trash(file.location, run):
                raise ValueError(f"{file.moved_to} is not the place of {file.location} in the trash of its run.")
        return Batch(document, run, int(content["at_ms"]), str(content["table_uuid"]), files)


def new_run(at_ms: int) -> str:
    """Create an id for a run; ids sort by time."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{moment:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"


class Disposal:
    def __init__(self, table: IcebergTable, storage: TableStorage, ledger: Ledger) -> None:
        self._table, self._storage, self._ledger = table, storage, ledger
        self.counts = {f"{unit}_{what}": 0 for what in _COUNTED for unit in ("files", "bytes")}

    def count(self, what: str, files: Iterable[TrashedFile]) -> None:
        for file in files:
            self.counts[f"files_{what}"] += 1
            self.counts[f"bytes_{what}"] += file.bytes

    def trash(self, files: Sequence[StoredFile], run: str, number: int, at_ms: int) -> Batch:
        """Record files that are not needed, and move or mark them."""
        planned = [TrashedFile(f.location, f.bytes, f.modified_ms, self._ledger.trash(f.location, run)) for f in files]
        batch = self._ledger.write(run, number, at_ms, planned)
        here = {file for file in planned if file.moved_to and not self._moved(file.location, file.moved_to)}
        self.count("failed", here)
        self.count("taken", [file for file in planned if file not in here])
        return self._ledger.without(batch, here)

    def restore(self, batch: Batch, files: Collection[TrashedFile], what: str) -> Batch:
        """Restore some files of a batch, count them, and return the rest of the batch."""
        back = {
            file
            for file in files
            if file.moved_to is None or self._moved(file.moved_to, file.location) or self._is_back(file)
        }
        self.count(what, back)
        self.count("failed", [file for file in files if file not in back])
        return self._ledger.without(batch, back)

    def restore_live(self, batch: Batch, reachable: Reachable) -> Batch:
        """Restore files that commits have used since they were trashed, and return the rest of the batch."""
        live = [file for file in batch.files if file.location in reachable]
        if live:
            log.warning("%s: %d trashed files are in use again, such as %s", self._table.name, len(live), live[0])
            return self.restore(batch, live, "spared")
        return batch

    def delete(self, batch: Batch, reachable: Reachable) -> None:
        """Delete a batch for good, except files that are in use again or were overwritten since."""
        batch = self.restore_live(batch, reachable)
        marked = [file.location for file in batch.files if file.moved_to is None]
        now = self._storage.find(marked)
        overwritten = {
            f
            for f in batch.files
            if f.location in now and now[f.location] != StoredFile(f.location, f.bytes, f.modified_ms)
        }
        self.count("spared", overwritten)
        deletable = {
            f.moved_to or f.location: f for f in batch.files if f not in overwritten and f.location not in reachable
        }
        left = self._storage.find(deletable) if self._storage.delete(deletable) else {}
        self.count("failed", [deletable[location] for location in left])
        deleted = {file for location, file in deletable.items() if location not in left}
        self.count("deleted", deleted)
        self._ledger.without(batch, deleted | overwritten)

    def sweep(self, run: str) -> None:
        """Remove the empty folders of a finished run."""
        for folder in self._ledger.folders:
            if not in_object_store(folder) and self._ledger.is_over(run):
                delete_folder(self._table, f"{folder}/{FOLDER}/files/{run}")

    def _moved(self, source: str, target: str) -> bool:
        try:
            return move(self._table, source, target)
        except Exception as error:
            log.warning("%s: %s was not moved to %s: %s", self._table.name, source, target, java_message(error))
            return False

    def _is_back(self, file: TrashedFile) -> bool:
        """Check whether a dead run has already restored the file."""
        assert file.moved_to
        return len(self._storage.find([file.location])) == 1 and not self._storage.find([file.moved_to])
