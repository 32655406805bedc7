"""What may refuse the commit of rewritten data files, beside Iceberg's own validation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.fence import stop_at_own
from lakecdc.iceberg.jvm import iterate, jvm, listed
from lakecdc.iceberg.table import MAIN

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable, Snapshot

# counts of a snapshot summary (Iceberg specification, appendix F); a look into its manifests costs a hundred times more
_REMOVED = ("deleted-data-files",)
_POSITIONS = ("added-position-delete-files", "added-dvs")


class EqualityDeleteGuard:
    """An Iceberg ``SnapshotAncestryValidator`` that keeps equality deletes committed during a rewrite in force.

    Rewritten files keep the sequence number they were read at, so that an equality delete of a later commit still
    applies to them. Two things would break that, and Iceberg sees neither:

    * ``MergingSnapshotProducer`` drops delete files older than the oldest data file that *remains*, without looking
      at the older number the new files get (apache/iceberg #10312). If the commit removes every data file up to a
      new equality delete, that delete is gone and its rows are back.
    * An equality delete reaches files of its own partition spec only. If the rewrite moves rows into another spec,
      a new delete written for the old one does not find them there.

    Iceberg calls it against the refreshed head on every attempt to commit.

    :param start: the snapshot the rewritten files were read at.
    :param removed: locations of the data files that the commit removes.
    :param removed_specs: their partition spec ids.
    :param output_spec: spec id of the new files.
    :ivar mark: the commit's own.
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
        self._left_specs = set(removed_specs) - {output_spec}
        self._message = "an equality delete was committed during the rewrite"
        self.mark: str | None = None

    def validate(self, ancestors: Any) -> bool:
        """Called by Iceberg with the head's ancestors, newest first."""
        iterator = ancestors.iterator()
        if not iterator.hasNext():
            return True
        head = iterator.next()
        stop_at_own(head, self.mark)
        deletes = list(_new_equality_deletes(self._table, head, self._start.sequence_number))
        if not deletes:
            return True
        if self._misses_moved_rows(spec for _, spec in deletes):
            self._message = "an equality delete was committed meanwhile for a partition spec that its rows have left"
            return False
        oldest = min(sequence for sequence, _ in deletes)
        if self._is_kept(head, oldest):
            return True
        self._message = f"Iceberg would drop an equality delete of sequence number {oldest} that is still needed"
        return False

    def errorMessage(self) -> str:
        """Called by Iceberg when :meth:`validate` said no."""
        return self._message

    def _misses_moved_rows(self, specs: Iterable[int]) -> bool:
        known = self._table.java.specs()
        return any(spec in self._left_specs and not known.get(spec).isUnpartitioned() for spec in specs)

    def _is_kept(self, head: Any, oldest: int) -> bool:
        """Tell whether Iceberg keeps a delete: no file older than the table's newest commit goes, nor does one for
        which a data file of its own or a lower number remains."""
        if oldest >= int(self._table.java.operations().current().lastSequenceNumber()):
            return True
        io, specs = self._table.java.io(), self._table.java.specs()
        manifests = jvm(self._table.spark).org.apache.iceberg.ManifestFiles
        return any(
            file.dataSequenceNumber() <= oldest and str(file.location()) not in self._removed
            for manifest in listed(head.dataManifests(io))
            if _has_live_files(manifest) and manifest.minSequenceNumber() <= oldest
            for file in iterate(manifests.read(manifest, io, specs))
        )

    class Java:
        """py4j's declaration of the implemented interface."""

        implements = ["org.apache.iceberg.SnapshotAncestryValidator"]


def refusal_in_sight(
    table: IcebergTable,
    start: Snapshot,
    locations: Collection[str],
    *,
    branch: str = MAIN,
    own: Collection[int] = (),
    vectors_only: bool = False,
) -> str | None:
    """Why a commit that removes these data files, or deletes rows of them, would be refused by now.

    :param start: the snapshot they were read at.
    :param locations: the data files.
    :param own: ids of snapshots that the run has committed itself.
    :param vectors_only: whether position deletes beside those of others are fine, unless they are vectors.
    :return: None if nothing speaks against it.
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
            return f"snapshot {snapshot.id} removed a data file that was to be rewritten"
        for delete in java.addedDeleteFiles(io) if _may_have(summary, _POSITIONS) else ():
            counts = util.isDV(delete) if vectors_only else delete.content().toString() == "POSITION_DELETES"
            if counts and str(util.referencedDataFile(delete)) in chosen:
                return f"snapshot {snapshot.id} deleted rows of a data file that was to be rewritten"
    return f"snapshot {start.id}, where the rewrite began, is no longer part of the branch"


def _may_have(summary: Mapping[str, str], counts: Iterable[str]) -> bool:
    """Whether a snapshot has what its summary counts; one without totals may have left out any count."""
    return "total-data-files" not in summary or any(count in summary for count in counts)


def _new_equality_deletes(table: IcebergTable, head: Any, after: int) -> Iterator[tuple[int, int]]:
    """Sequence number and spec id of the live equality-delete files above a sequence number."""
    io, specs = table.java.io(), table.java.specs()
    manifests = jvm(table.spark).org.apache.iceberg.ManifestFiles
    for manifest in listed(head.deleteManifests(io)):
        # a manifest is at least as new as the newest file in it
        if manifest.sequenceNumber() <= after or not _has_live_files(manifest):
            continue
        for file in iterate(manifests.readDeleteManifest(manifest, io, specs)):
            sequence = int(file.dataSequenceNumber())
            if sequence > after and file.content().toString() == "EQUALITY_DELETES":
                yield sequence, int(file.specId())


def _has_live_files(manifest: Any) -> bool:
    return bool(manifest.hasAddedFiles() or manifest.hasExistingFiles())
