"""Expiring snapshots through Iceberg's own rules, which delete only what no remaining snapshot refers to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.iceberg.commit import told_as_conflict
from lakecdc.iceberg.jvm import jvm, listed, mapping
from lakecdc.iceberg.retry import retried

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


@dataclass(frozen=True)
class Deleted:
    """Files that an expiry deleted."""

    deleted_data_files: int
    deleted_position_delete_files: int
    deleted_equality_delete_files: int
    deleted_manifests: int
    deleted_manifest_lists: int
    deleted_statistics_files: int

    def metrics(self) -> dict[str, int]:
        """For the report."""
        return asdict(self)


def would_expire(table: IcebergTable, older_than_ms: int, retain_last: int) -> set[int]:
    """Ids of the snapshots that an expiry would remove; nothing is changed.

    Branches' own ``min-snapshots-to-keep`` and ``max-snapshot-age-ms`` count, as do refs whose age has passed.

    :param older_than_ms: snapshots made before this moment expire, in milliseconds since 1970.
    :param retain_last: snapshots kept on every branch.
    """
    update = table.java.expireSnapshots().expireOlderThan(older_than_ms).retainLast(retain_last)
    return {int(snapshot.snapshotId()) for snapshot in listed(update.apply())}


def expire(table: IcebergTable, older_than_ms: int, retain_last: int) -> Deleted:
    """Remove snapshots and delete the files that only they referred to.

    :raises ConflictError: other writers won too often; nothing was deleted.
    """
    actions = jvm(table.spark).org.apache.iceberg.spark.actions.SparkActions.get(table.spark._jsparkSession)
    action = actions.expireSnapshots(table.java).expireOlderThan(older_than_ms).retainLast(retain_last)
    with told_as_conflict(table, "The expiry was refused", "No snapshot and no file was removed; run again."):
        result = action.execute()
    table.refresh()
    return Deleted(
        int(result.deletedDataFilesCount()),
        int(result.deletedPositionDeleteFilesCount()),
        int(result.deletedEqualityDeleteFilesCount()),
        int(result.deletedManifestsCount()),
        int(result.deletedManifestListsCount()),
        int(result.deletedStatisticsFilesCount()),
    )


def refs(table: IcebergTable) -> dict[str, int]:
    """Branches and tags, each with the snapshot it names."""
    return {str(name): int(ref.snapshotId()) for name, ref in mapping(table.java.refs()).items()}


def set_tag(table: IcebergTable, tag: str, snapshot_id: int) -> None:
    """Put a tag on a snapshot, wherever it was before.

    :raises ConflictError: another writer removed the snapshot.
    """

    def put() -> None:
        manage = table.java.manageSnapshots()
        (manage.replaceTag if tag in refs(table) else manage.createTag)(tag, snapshot_id).commit()

    what = f"Tag {tag!r} could not be put on snapshot {snapshot_id}"
    with told_as_conflict(table, what, "Nothing was removed; run again."):
        retried(table, put)
    table.refresh()


def missing_files(table: IcebergTable, locations: Collection[str]) -> list[str]:
    """Those of the files that the table's FileIO does not find."""
    io: Any = table.java.io()
    return [location for location in locations if not io.newInputFile(location).exists()]
