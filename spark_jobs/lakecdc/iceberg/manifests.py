"""Rewriting of manifests with Iceberg's own action, in a transaction that can be verified before its commit."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from lakecdc.iceberg.bulk import java_calls
from lakecdc.iceberg.commit_outcome import commit_transaction
from lakecdc.iceberg.file_io import discard_files
from lakecdc.iceberg.jvm import jvm, spark_actions
from lakecdc.metadata import names
from lakecdc.metadata.manifests import Manifest

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable, Snapshot

_MANIFEST_FILE = "org.apache.iceberg.ManifestFile"


@dataclass(frozen=True)
class StagedManifests:
    """Rewritten manifests in a transaction, invisible before its commit.

    :param transaction: Java ``Transaction``.
    :param base: id of the snapshot that it started from.
    :param before: manifests of that snapshot.
    :param after: manifests after the commit.
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
    return commit_transaction(table, staged.transaction, staged.mark)


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
