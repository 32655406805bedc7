"""Removal of files to the trash, their restoration, and their final deletion.

On a file system they are moved; in an object store, which cannot move, they stay and are only marked for deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from lakecdc.iceberg.jvm import java_message
from lakecdc.iceberg.stored_files import StoredFile, delete_folder, move
from lakecdc.iceberg.table import IcebergTable
from lakecdc.maintain.orphans.ledger import Batch, Ledger, Taken
from lakecdc.maintain.orphans.locations import FOLDER, in_object_store
from lakecdc.maintain.orphans.reachable import Reachable
from lakecdc.maintain.orphans.storage import TableStorage

log = logging.getLogger(__name__)


# what a run counts: files moved to the trash or marked for deletion; restored; deleted; in use again or overwritten, so
# that they were restored or are no longer marked; and not moved or deleted, named in the log
_COUNTED = ("taken", "restored", "deleted", "spared", "failed")


class Disposal:
    def __init__(self, table: IcebergTable, storage: TableStorage, ledger: Ledger) -> None:
        self._table, self._storage, self._ledger = table, storage, ledger
        self.counts = {f"{unit}_{what}": 0 for what in _COUNTED for unit in ("files", "bytes")}

    def count(self, what: str, files: Iterable[Taken]) -> None:
        """Count files for the report."""
        for file in files:
            self.counts[f"files_{what}"] += 1
            self.counts[f"bytes_{what}"] += file.bytes

    def take(self, files: Sequence[StoredFile], run: str, number: int, at_ms: int) -> Batch:
        """Record and take away files that are not needed."""
        planned = [Taken(f.location, f.bytes, f.modified_ms, self._ledger.trash(f.location, run)) for f in files]
        batch = self._ledger.write(run, number, at_ms, planned)
        here = {file for file in planned if file.moved_to and not self._moved(file.location, file.moved_to)}
        self.count("failed", here)
        self.count("taken", [file for file in planned if file not in here])
        return self._ledger.without(batch, here)

    def bring_back(self, batch: Batch, files: Collection[Taken], what: str) -> Batch:
        """Restore some files of a batch, count them, and return the rest of the batch."""
        back = {
            file
            for file in files
            if file.moved_to is None or self._moved(file.moved_to, file.location) or self._is_back(file)
        }
        self.count(what, back)
        self.count("failed", [file for file in files if file not in back])
        return self._ledger.without(batch, back)

    def spare(self, batch: Batch, reachable: Reachable) -> Batch:
        """Restore files that commits have used since they were taken away, and return the rest of the batch."""
        live = [file for file in batch.files if file.location in reachable]
        if live:
            log.warning("%s: %d files taken away are in use again, such as %s", self._table.name, len(live), live[0])
            return self.bring_back(batch, live, "spared")
        return batch

    def delete(self, batch: Batch, reachable: Reachable) -> None:
        """Delete a batch for good, except files that are in use again or were overwritten since."""
        batch = self.spare(batch, reachable)
        sentenced = [file.location for file in batch.files if file.moved_to is None]
        now = self._storage.find(sentenced)
        anew = {
            f
            for f in batch.files
            if f.location in now and now[f.location] != StoredFile(f.location, f.bytes, f.modified_ms)
        }
        self.count("spared", anew)
        doomed = {f.moved_to or f.location: f for f in batch.files if f not in anew and f.location not in reachable}
        left = self._storage.find(doomed) if self._storage.delete(doomed) else {}
        self.count("failed", [doomed[location] for location in left])
        gone = {file for location, file in doomed.items() if location not in left}
        self.count("deleted", gone)
        self._ledger.without(batch, gone | anew)

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

    def _is_back(self, file: Taken) -> bool:
        """Check whether a dead run already restored it."""
        assert file.moved_to
        return len(self._storage.find([file.location])) == 1 and not self._storage.find([file.moved_to])
