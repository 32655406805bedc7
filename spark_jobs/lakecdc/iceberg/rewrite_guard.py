"""Refusal of commits of rewritten data files, beyond Iceberg's own validation."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lakecdc.iceberg.definition import has_live_files, unpartitioned_specs
from lakecdc.iceberg.fence import CommitValidator
from lakecdc.iceberg.jvm import iterate, jvm, listed, walk
from lakecdc.iceberg.table import MAIN, IcebergTable, Snapshot
from lakecdc.metadata import names

# counts of a snapshot summary (Iceberg specification, appendix F); reading its manifests costs a hundred times more
_REMOVED = ("deleted-data-files",)
_POSITIONS = ("added-position-delete-files", "added-dvs")


@dataclass(frozen=True)
class _NewDelete:
    """A live equality-delete file that a rewrite has not applied; records are keys."""

    sequence: int
    spec_id: int
    records: int


class EqualityDeleteGuard(CommitValidator):
    """Keep equality deletes committed during a rewrite in force.

    Rewritten files keep the sequence number they were read at, so that an equality delete of a later commit still
    applies to them. Two things would break that, and Iceberg detects neither:

    * ``MergingSnapshotProducer`` drops delete files older than the oldest data file that *remains*, ignoring the older
      number of the new files (apache/iceberg #10312). If the commit removes every data file up to a new equality
      delete, that delete is dropped and its rows reappear.
    * An equality delete applies only to files of its own partition spec. If the rewrite moves rows to another spec, a
      new delete for the old one does not find them there. It need not, if its commit says that it deletes the same keys
      in the other spec (``lakecdc.delete-specs``), and all its deletes there are still live.

    :param start: the snapshot the rewritten files were read at.
    :param removed: locations of the data files that the commit removes.
    """

    def __init__(
        self,
        table: IcebergTable,
        start: Snapshot,
        removed: Collection[str],
        removed_specs: Collection[int],
        output_spec: int,
    ) -> None:
        self._table, self._start, self._removed = table, start, set(removed)
        everywhere = unpartitioned_specs(table)
        self._left_specs = set(removed_specs) - {output_spec} - everywhere
        self._reaching = {output_spec} | everywhere

    def validate(self, ancestors: Any) -> bool:
        """Validate a commit; called by Iceberg."""
        known = walk(ancestors)
        head = next(known, None)
        if head is None:
            return True
        self.stop_at_own(head)
        deletes = list(_new_equality_deletes(self._table, head, self._start.sequence_number))
        if not deletes:
            return True
        if self._misses_moved_rows(deletes, itertools.chain([head], known)):
            self.message = "an equality delete was committed meanwhile for a partition spec that its rows have left"
            return False
        oldest = min(delete.sequence for delete in deletes)
        if self._stays_live(head, oldest):
            return True
        self.message = f"Iceberg would drop an equality delete of sequence number {oldest} that is still needed"
        return False

    def _misses_moved_rows(self, deletes: Sequence[_NewDelete], ancestors: Iterator[Any]) -> bool:
        leaving = {delete.sequence for delete in deletes if delete.spec_id in self._left_specs}
        while leaving:
            snapshot = next(ancestors, None)
            if snapshot is None or snapshot.sequenceNumber() <= self._start.sequence_number:
                return True
            sequence = int(snapshot.sequenceNumber())
            if sequence in leaving:
                of_commit = [delete for delete in deletes if delete.sequence == sequence]
                if not self._reaches_moved_rows(of_commit, snapshot.summary()):
                    return True
                leaving.remove(sequence)
        return False

    def _reaches_moved_rows(self, deletes: Iterable[_NewDelete], summary: Any) -> bool:
        """Check whether all keys that a commit deleted are still deleted where the moved rows are.

        A conversion may have removed some of its deletes already, if the rows were not yet there.
        """
        specs = {int(number) for number in (summary.get(names.DELETE_SPECS) or "").split(",") if number}
        keys = int(summary.get("added-equality-deletes") or 0)
        return any(
            sum(delete.records for delete in deletes if delete.spec_id == spec) * len(specs) == keys
            for spec in specs & self._reaching
        )

    def _stays_live(self, head: Any, oldest: int) -> bool:
        """Check whether Iceberg keeps a delete: of the newest commit, or with a data file left that is not newer."""
        if oldest >= int(self._table.java.operations().current().lastSequenceNumber()):
            return True
        io, specs = self._table.java.io(), self._table.java.specs()
        manifests = jvm(self._table.spark).org.apache.iceberg.ManifestFiles
        return any(
            file.dataSequenceNumber() <= oldest and str(file.location()) not in self._removed
            for manifest in listed(head.dataManifests(io))
            if has_live_files(manifest) and manifest.minSequenceNumber() <= oldest
            for file in iterate(manifests.read(manifest, io, specs))
        )


class MovedRowsGuard(CommitValidator):
    """Validate removals of equality deletes: no rows may have moved to their spec.

    Moved rows keep the sequence number they were read at. So a delete that applied to nothing in a spec may apply to
    rows moved there since, and Iceberg does not detect that.

    :param start: the snapshot in which the deletes were checked.
    :param specs: ids of their partition specs.
    """

    message = "rows have moved to another partition spec, where the deletes may apply to them"

    def __init__(self, table: IcebergTable, start: Snapshot, specs: Collection[int]) -> None:
        self._table, self._start, self._specs = table, start.id, set(specs)
        self._checked: set[int] = set()

    def validate(self, ancestors: Any) -> bool:
        """Validate a commit; called by Iceberg."""
        for snapshot in walk(ancestors):
            self.stop_at_own(snapshot)
            number = int(snapshot.snapshotId())
            if number == self._start:
                return True
            if number not in self._checked and self._moves_rows(snapshot):
                return False
            self._checked.add(number)
        return True

    def _moves_rows(self, snapshot: Any) -> bool:
        if str(snapshot.operation()) != "replace":
            return False
        io = self._table.java.io()
        removed, added = (
            {int(file.specId()) for file in files(io)} for files in (snapshot.removedDataFiles, snapshot.addedDataFiles)
        )
        return bool(added & self._specs and removed - added)


def refusal_in_sight(
    table: IcebergTable,
    start: Snapshot,
    locations: Collection[str],
    *,
    branch: str = MAIN,
    own: Collection[int] = (),
    counted: Literal["all", "vectors", "none"] = "all",
) -> str | None:
    """Return why a commit that removes these data files, or deletes rows of them, would be refused now.

    :param start: the snapshot they were read at.
    :param own: ids of snapshots that the run has committed itself.
    :param counted: position deletes of other runs that would make it fail.
    :return: None if nothing prevents it.
    """
    chosen, io = set(locations), table.refresh().java.io()
    util = jvm(table.spark).org.apache.iceberg.util.ContentFileUtil
    for snapshot in table.ancestors(branch):
        if snapshot.id == start.id:
            return None
        if snapshot.id in own or not chosen:
            continue
        java, summary = table.java.snapshot(snapshot.id), snapshot.summary
        if _may_have(summary, _REMOVED) and any(str(f.location()) in chosen for f in java.removedDataFiles(io)):
            return f"snapshot {snapshot.id} removed a data file to be rewritten"
        for delete in java.addedDeleteFiles(io) if counted != "none" and _may_have(summary, _POSITIONS) else ():
            counts = util.isDV(delete) if counted == "vectors" else delete.content().toString() == "POSITION_DELETES"
            if counts and str(util.referencedDataFile(delete)) in chosen:
                return f"snapshot {snapshot.id} deleted rows of a data file to be rewritten"
    return f"the start snapshot {start.id} is no longer part of the branch"


def _may_have(summary: Mapping[str, str], counts: Iterable[str]) -> bool:
    """Check whether a snapshot may have what its summary counts; a summary without totals may omit any count."""
    return "total-data-files" not in summary or any(count in summary for count in counts)


def _new_equality_deletes(table: IcebergTable, head: Any, after: int) -> Iterator[_NewDelete]:
    io, specs = table.java.io(), table.java.specs()
    manifests = jvm(table.spark).org.apache.iceberg.ManifestFiles
    for manifest in listed(head.deleteManifests(io)):
        # a manifest is at least as new as the newest file in it
        if manifest.sequenceNumber() <= after or not has_live_files(manifest):
            continue
        for file in iterate(manifests.readDeleteManifest(manifest, io, specs)):
            sequence = int(file.dataSequenceNumber())
            if sequence > after and file.content().toString() == "EQUALITY_DELETES":
                yield _NewDelete(sequence, int(file.specId()), int(file.recordCount()))
