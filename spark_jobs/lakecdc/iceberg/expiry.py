"""Expiring snapshots by Iceberg's own rules: first out of the metadata, then the files that nothing refers to any more.

Iceberg's Spark action does both, in a commit of its own, and asks nobody between them. Here the commit is a
transaction, so that tags move with it. The action is given the table later, for what it is good at: finding the files
by Spark, and deleting them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.bulk import java_calls
from lakecdc.iceberg.commit import told_as_conflict
from lakecdc.iceberg.forwarding import OBJECT, OBJECTS, Forwarding, Handles
from lakecdc.iceberg.history import read_history
from lakecdc.iceberg.jvm import jvm, spark_actions
from lakecdc.iceberg.refs import put_refs
from lakecdc.iceberg.retry import MetadataMovedError, retried

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecdc.iceberg.history import History
    from lakecdc.iceberg.refs import Ref
    from lakecdc.iceberg.table import IcebergTable

_OPERATIONS, _METADATA = "org.apache.iceberg.TableOperations", "org.apache.iceberg.TableMetadata"
_BY_SNAPSHOT = ("snapshots", "statistics", "partition-statistics")


@dataclass(frozen=True)
class Deleted:
    """Files that an expiry deleted."""

    deleted_data_files: int = 0
    deleted_position_delete_files: int = 0
    deleted_equality_delete_files: int = 0
    deleted_manifests: int = 0
    deleted_manifest_lists: int = 0
    deleted_statistics_files: int = 0

    def metrics(self) -> dict[str, int]:
        """For the report."""
        return asdict(self)


@dataclass(frozen=True)
class Expiry:
    """What is to expire.

    :param history: what it was planned from.
    :param older_than_ms: snapshots made before this moment expire, in milliseconds since 1970.
    :param retain_last: snapshots kept on every branch.
    :param expired: ids of the snapshots that go.
    :param refs: tags that are put somewhere in the same commit.
    """

    history: History
    older_than_ms: int
    retain_last: int
    expired: frozenset[int]
    refs: Mapping[str, Ref]


def would_expire(table: IcebergTable, older_than_ms: int, retain_last: int) -> frozenset[int]:
    """Ids of the snapshots that an expiry would remove; nothing is changed.

    Branches' own ``min-snapshots-to-keep`` and ``max-snapshot-age-ms`` count, as do refs whose age has passed.

    :param older_than_ms: snapshots made before this moment expire, in milliseconds since 1970.
    :param retain_last: snapshots kept on every branch.
    """
    calls = java_calls(table.spark)
    found = _update(table.java, older_than_ms, retain_last).apply()
    snapshot_id = calls.method("org.apache.iceberg.Snapshot", "snapshotId")(calls.it)
    return frozenset(number for (number,) in calls.rows(found, snapshot_id))


def expire(table: IcebergTable, plan: Callable[[], Expiry]) -> Expiry:
    """Take snapshots, and refs whose age has passed, out of the metadata, and put tags, in one commit. No file goes.

    :param plan: called again whenever another writer has come first.
    :return: what was carried out.
    :raises ConflictError: other writers won too often.
    """

    def commit() -> Expiry:
        planned = plan()
        try:
            _commit(table, planned)
        except MetadataMovedError:
            raise
        except Exception:
            # the answer of a commit that arrived may have been lost
            if not _arrived(table, planned):
                raise
        return planned

    with told_as_conflict(table, "The expiry was refused", "No snapshot and no file was removed; run again."):
        done = retried(table, commit)
    table.refresh()
    return done


def delete_unreachable(table: IcebergTable, before: History, after: History) -> Deleted:
    """Delete the files that snapshots which have gone were the last to refer to.

    Iceberg's action looks at the metadata, commits, looks again, and deletes what only the first look has found. Here
    it looks at both in turn, and its commit is none.

    :param after: read after the snapshots went.
    """
    gone = before.snapshots.keys() - after.snapshots.keys()
    both = dict(after.document)
    for key in _BY_SNAPSHOT:
        went = [entry for entry in before.document.get(key, []) if entry["snapshot-id"] in gone]
        both[key] = [*after.document.get(key, []), *went]
    first, second = (_parsed(table, after.location, document) for document in (both, after.document))
    operations = _in_turn(table, first, second)
    seen = jvm(table.spark).org.apache.iceberg.BaseTable(operations, table.name)
    action = spark_actions(table.spark).expireSnapshots(seen)
    result = action.option("stream-results", "true").execute()
    return Deleted(
        int(result.deletedDataFilesCount()),
        int(result.deletedPositionDeleteFilesCount()),
        int(result.deletedEqualityDeleteFilesCount()),
        int(result.deletedManifestsCount()),
        int(result.deletedManifestListsCount()),
        int(result.deletedStatisticsFilesCount()),
    )


def missing_files(table: IcebergTable, locations: Collection[str]) -> list[str]:
    """Those of the files that the table's FileIO does not find."""
    io: Any = table.java.io()
    return [location for location in locations if not io.newInputFile(location).exists()]


def _update(owner: Any, older_than_ms: int, retain_last: int) -> Any:
    return owner.expireSnapshots().expireOlderThan(older_than_ms).retainLast(retain_last)


def _commit(table: IcebergTable, planned: Expiry) -> None:
    transaction = table.java.newTransaction()
    here = str(transaction.table().operations().current().metadataFileLocation())
    if here != planned.history.location:
        raise MetadataMovedError("Another writer has committed since the expiry was planned.", table=table.name)
    put_refs(table, dict(planned.refs), owner=transaction)
    _update(transaction, planned.older_than_ms, planned.retain_last).cleanExpiredFiles(False).commit()
    transaction.commitTransaction()


def _arrived(table: IcebergTable, planned: Expiry) -> bool:
    try:
        found = read_history(table)
    except ConflictError:
        return False
    placed = all(found.refs.get(name) == ref for name, ref in planned.refs.items())
    return bool(planned.expired) and not planned.expired & found.snapshots.keys() and placed


def _parsed(table: IcebergTable, location: str, document: Mapping[str, Any]) -> Any:
    # the log that was read ends with the metadata file itself
    without_itself = {**document, "metadata-log": document["metadata-log"][:-1]}
    return jvm(table.spark).org.apache.iceberg.TableMetadataParser.fromJson(location, json.dumps(without_itself))


def _in_turn(table: IcebergTable, first: Any, second: Any) -> Any:
    """``TableOperations`` that have the first metadata until they are refreshed to the second, and commit nothing."""
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
