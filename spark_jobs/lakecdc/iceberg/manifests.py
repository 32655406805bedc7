"""Rewriting of manifests in a transaction: by Iceberg's own action, or without the entries of removed files.

These have bounds that reveal former rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from lakecdc.iceberg.bulk import java_calls
from lakecdc.iceberg.commit import move_tag, set_summary
from lakecdc.iceberg.commit_outcome import run_commit
from lakecdc.iceberg.definition import has_live_files
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.file_io import discard_files
from lakecdc.iceberg.jvm import ensure_callbacks, iterate, jvm, listed, spark_actions
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.metadata import names
from lakecdc.metadata.manifests import Manifest

_MANIFEST_FILE = "org.apache.iceberg.ManifestFile"


@dataclass(frozen=True)
class StagedManifests:
    """Rewritten manifests in a Java ``Transaction``, invisible before its commit.

    :param base: id of the snapshot that it started from, with the manifests ``before``.
    :param mark: commit id of the transaction's last snapshot.
    :param files: locations of all written files.
    """

    transaction: Any
    base: int
    before: list[Manifest]
    after: list[Manifest]
    mark: str
    files: list[str]


def manifests(table: IcebergTable, snapshot_id: int | None = None) -> list[Manifest]:
    """Return the manifests of a snapshot, by default of the head, from its manifest list alone."""
    return _manifests_of(
        table, table.java.currentSnapshot() if snapshot_id is None else table.java.snapshot(snapshot_id)
    )


def stage_manifests(table: IcebergTable, spec_ids: Sequence[int], summary: Mapping[str, str]) -> StagedManifests:
    """Rewrite the manifests of partition specs, at least one, grouped by partition, without committing them.

    Iceberg's action gets the table of a transaction, so that it commits into that.
    """
    transaction, mark = table.java.newTransaction(), str(uuid.uuid4())
    inside = transaction.table()
    base = inside.currentSnapshot()
    actions = spark_actions(table.spark)
    try:
        for spec_id in spec_ids:
            action = actions.rewriteManifests(inside).specId(spec_id)
            for key, value in {**summary, names.COMMIT_ID: mark}.items():
                action = action.snapshotProperty(key, value)
            action.execute()
    except BaseException:
        discard_files(table, _written(table, inside, base))
        raise
    before, after = _manifests_of(table, base), _manifests_of(table, inside.currentSnapshot())
    return StagedManifests(transaction, int(base.snapshotId()), before, after, mark, _written(table, inside, base))


def publish_manifests(table: IcebergTable, staged: StagedManifests) -> Snapshot:
    """Commit rewritten manifests.

    :raises ConflictError: another writer changed one of the manifests that they replace.
    """
    return run_commit(table, staged.transaction.commitTransaction, staged.mark)


def staged_entries(table: IcebergTable, staged: StagedManifests) -> DataFrame:
    """Return the metadata table ``entries`` as it would be with the rewritten manifests."""
    iceberg = jvm(table.spark).org.apache.iceberg
    kind = iceberg.MetadataTableType.ENTRIES
    rows = iceberg.spark.SparkTableUtil.loadMetadataTable(table.spark._jsparkSession, staged.transaction.table(), kind)
    return DataFrame(rows, table.spark)


def _manifests_of(table: IcebergTable, snapshot: Any) -> list[Manifest]:
    if snapshot is None:
        return []
    calls = java_calls(table.spark)
    facts = [
        calls.method(_MANIFEST_FILE, name)(calls.it)
        for name in ("path", "partitionSpecId", "length", "content", "existingFilesCount", "addedFilesCount")
    ]
    return [
        Manifest(path, spec_id, size, content == "DELETES", (existing or 0) + (added or 0))
        for path, spec_id, size, content, existing, added in calls.rows(snapshot.allManifests(table.java.io()), *facts)
    ]


def _written(table: IcebergTable, inside: Any, base: Any) -> list[str]:
    known = {manifest.path for manifest in _manifests_of(table, base)}
    written, snapshot = list[str](), inside.currentSnapshot()
    while snapshot.snapshotId() != base.snapshotId():
        new = [manifest.path for manifest in _manifests_of(table, snapshot) if manifest.path not in known]
        written += [path for path in (*new, str(snapshot.manifestListLocation())) if path not in written]
        snapshot = inside.snapshot(snapshot.parentId())
    return written


def drop_deleted_entries(
    table: IcebergTable, fence: PositionFence, summary: Mapping[str, str], tag: str | None
) -> Snapshot | None:
    """Rewrite the head's manifests that have entries of removed files, without these entries.

    Iceberg keeps them until it rewrites the manifest for another reason; its own action does not rewrite a single one.

    :param tag: moved to the new snapshot.
    :return: the new head; None if there are no such entries.
    :raises ConflictError: another writer was faster.
    """
    ensure_callbacks(table.spark)
    head = table.refresh().java.currentSnapshot()
    stale = [m for m in listed(head.allManifests(table.java.io())) if m.hasDeletedFiles()]
    if not stale:
        return None
    mark = fence.mark = str(uuid.uuid4())
    live = [m for m in stale if has_live_files(m)]
    snapshots = _snapshot_ids(table, live)
    written = [_rewritten(table, manifest, snapshots) for manifest in live]
    transaction = table.java.newTransaction()
    rewrite = transaction.rewriteManifests().validateWith(fence)
    for manifest in stale:
        rewrite = rewrite.deleteManifest(manifest)
    for manifest in written:
        rewrite = rewrite.addManifest(manifest)
    set_summary(rewrite, summary, mark)
    try:
        rewrite.commit()
        if tag:
            move_tag(transaction, tag)
    except Exception:
        discard_files(table, [str(manifest.path()) for manifest in written])
        raise
    return run_commit(table, transaction.commitTransaction, mark)


def _snapshot_ids(table: IcebergTable, manifests: list[Any]) -> dict[tuple[str, int | None], int]:
    """Return the snapshot that added each live file, which Iceberg's manifest reader does not expose."""
    if not manifests:
        return {}
    columns = "snapshot_id", "data_file.file_path AS path", "data_file.content_offset AS offset"
    rows = table.metadata("entries").where("status < 2").selectExpr(*columns)
    return {(row["path"], row["offset"]): int(row["snapshot_id"]) for row in rows.toLocalIterator()}


def _rewritten(table: IcebergTable, manifest: Any, snapshots: Mapping[tuple[str, int | None], int]) -> Any:
    files, io = jvm(table.spark).org.apache.iceberg.ManifestFiles, table.java.io()
    specs, is_delete = table.java.specs(), str(manifest.content().toString()) == "DELETES"
    output = io.newOutputFile(table.java.operations().metadataFileLocation(f"{uuid.uuid4()}-m0.avro"))
    spec = specs.get(manifest.partitionSpecId())
    write, read = (files.writeDeleteManifest, files.readDeleteManifest) if is_delete else (files.write, files.read)
    writer = write(table.format_version, spec, output, None)
    with closing(writer):
        for file in iterate(read(manifest, io, specs)):
            key = str(file.location()), file.contentOffset() if is_delete else None
            writer.existing(file, snapshots[key], file.dataSequenceNumber(), file.fileSequenceNumber())
    return writer.toManifestFile()
