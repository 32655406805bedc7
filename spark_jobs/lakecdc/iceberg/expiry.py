"""Snapshot expiry by Iceberg's rules: first from the metadata, then deletion of unreferenced files.

Iceberg's Spark action does both with its own commit and no check in between. Here the commit is a transaction, so that
tags move with it. The action is used afterwards for what it does well: finding the files with Spark, and deleting them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.bulk import java_calls
from lakecdc.iceberg.commit_outcome import MetadataMovedError, conflict_errors, retry_commit
from lakecdc.iceberg.forwarding import OBJECT, OBJECTS, Forwarding, Handles
from lakecdc.iceberg.history import History, read_history
from lakecdc.iceberg.jvm import jvm, spark_actions
from lakecdc.iceberg.refs import Ref, put_refs
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata.locations import resolve

_OPERATIONS, _METADATA = "org.apache.iceberg.TableOperations", "org.apache.iceberg.TableMetadata"
_BY_SNAPSHOT = ("snapshots", "statistics", "partition-statistics")
# metrics of the report, by the getter of the action's result
_DELETED = {
    "deleted_data_files": "deletedDataFilesCount",
    "deleted_position_delete_files": "deletedPositionDeleteFilesCount",
    "deleted_equality_delete_files": "deletedEqualityDeleteFilesCount",
    "deleted_manifests": "deletedManifestsCount",
    "deleted_manifest_lists": "deletedManifestListsCount",
    "deleted_statistics_files": "deletedStatisticsFilesCount",
}


@dataclass(frozen=True)
class Expiry:
    """Snapshots to expire.

    :param history: the plan's base.
    :param older_than_ms: snapshots from before this time expire, in milliseconds since 1970.
    :param retain_last: snapshots kept on every branch.
    :param refs: tags to set in the same commit.
    """

    history: History
    older_than_ms: int
    retain_last: int
    expired: frozenset[int]
    refs: Mapping[str, Ref]


def would_expire(table: IcebergTable, older_than_ms: int, retain_last: int) -> frozenset[int]:
    """Return the ids of the snapshots that an expiry would remove; change nothing.

    Branches' own ``min-snapshots-to-keep`` and ``max-snapshot-age-ms`` count, as do refs whose age has passed.
    """
    calls = java_calls(table.spark)
    expiring = _update(table.java, older_than_ms, retain_last).apply()
    snapshot_id = calls.method("org.apache.iceberg.Snapshot", "snapshotId")(calls.it)
    return frozenset(number for (number,) in calls.rows(expiring, snapshot_id))


def expire(table: IcebergTable, plan: Callable[[], Expiry]) -> Expiry:
    """Remove snapshots and overdue refs from the metadata, and set tags, in one commit without deleting files.

    :param plan: called again whenever another writer was faster; the executed one is returned.
    :raises ConflictError: other writers won too often.
    """

    def commit() -> Expiry:
        planned = plan()
        try:
            _commit(table, planned)
        except MetadataMovedError:
            raise
        except Exception:
            # the commit may have arrived although its answer was lost
            if not _arrived(table, planned):
                raise
        return planned

    with conflict_errors(table, "The expiry was refused", "No snapshot and no file was removed; run again."):
        done = retry_commit(table, commit)
    table.refresh()
    return done


def delete_unreachable(table: IcebergTable, before: History, after: History) -> dict[str, int]:
    """Delete the files that only expired snapshots referenced, and return their numbers for the report.

    Iceberg's action reads the metadata, commits, reads it again, and deletes what only the first read had. Here it gets
    both in turn, and its commit does nothing.
    """
    expired = before.snapshots.keys() - after.snapshots.keys()
    if not expired:
        return dict.fromkeys(_DELETED, 0)
    both = dict(after.document)
    for key in _BY_SNAPSHOT:
        went = [entry for entry in before.document.get(key, []) if entry["snapshot-id"] in expired]
        both[key] = [*after.document.get(key, []), *went]
    first, second = (_parsed(table, after.location, document) for document in (both, after.document))
    operations = _in_turn(table, first, second)
    view = jvm(table.spark).org.apache.iceberg.BaseTable(operations, table.name)
    action = spark_actions(table.spark).expireSnapshots(view)
    result = action.option("stream-results", "true").execute()
    return {metric: int(getattr(result, getter)()) for metric, getter in _DELETED.items()}


def missing_files(table: IcebergTable, locations: Collection[str]) -> list[str]:
    """Return the files that the table's FileIO does not find."""
    io, root = table.java.io(), table.location
    return [location for location in locations if not io.newInputFile(resolve(location, root)).exists()]


def _update(owner: Any, older_than_ms: int, retain_last: int) -> Any:
    return owner.expireSnapshots().expireOlderThan(older_than_ms).retainLast(retain_last)


def _commit(table: IcebergTable, planned: Expiry) -> None:
    transaction = table.java.newTransaction()
    here = str(transaction.table().operations().current().metadataFileLocation())
    if here != planned.history.location:
        raise MetadataMovedError("Another writer committed since the expiry was planned.", table=table.name)
    put_refs(table, dict(planned.refs), owner=transaction)
    _update(transaction, planned.older_than_ms, planned.retain_last).cleanExpiredFiles(False).commit()
    transaction.commitTransaction()


def _arrived(table: IcebergTable, planned: Expiry) -> bool:
    try:
        current = read_history(table)
    except ConflictError:
        return False
    placed = all(current.refs.get(name) == ref for name, ref in planned.refs.items())
    return bool(planned.expired) and not planned.expired & current.snapshots.keys() and placed


def _parsed(table: IcebergTable, location: str, document: Mapping[str, Any]) -> Any:
    # its log ends with the metadata file itself
    without_itself = {**document, "metadata-log": document["metadata-log"][:-1]}
    return jvm(table.spark).org.apache.iceberg.TableMetadataParser.fromJson(location, json.dumps(without_itself))


def _in_turn(table: IcebergTable, first: Any, second: Any) -> Any:
    """Build ``TableOperations`` that switch from the first to the second metadata on refresh, and commit nothing."""
    handles = Handles(table.spark)

    def answer(value: Any) -> Any:
        constant = handles.combine.constant(handles.cls(OBJECT), value)
        return handles.ignoring(handles.ignoring(constant, OBJECTS), OBJECT)

    replaced = {
        handles.reflected(_OPERATIONS, "refresh"): answer(second),
        handles.reflected(_OPERATIONS, "commit", _METADATA, _METADATA): answer(None),
    }
    static = jvm(table.spark).org.apache.iceberg.StaticTableOperations(first, table.java.io())
    return Forwarding(table.spark, handles, [_OPERATIONS], replaced)(static)
