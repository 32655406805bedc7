"""Removal of entries of removed files from manifests, because their bounds reveal former rows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.commit import move_tag, set_summary
from lakecdc.iceberg.commit_outcome import commit_transaction
from lakecdc.iceberg.definition import has_live_files
from lakecdc.iceberg.file_io import discard_files
from lakecdc.iceberg.jvm import ensure_callbacks, iterate, jvm, listed

if TYPE_CHECKING:
    from lakecdc.iceberg.fence import PositionFence
    from lakecdc.iceberg.table import IcebergTable, Snapshot


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
    return commit_transaction(table, transaction, mark)


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
