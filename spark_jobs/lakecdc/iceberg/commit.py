"""Commits of rows, deletes and rewritten files, each with its validation."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lakecdc.contract.errors import ConflictError, InputError, UnsupportedError
from lakecdc.iceberg.commit_outcome import retry_commit, run_commit
from lakecdc.iceberg.fence import CommitValidator, FloorFence, LeaseFence, PositionFence
from lakecdc.iceberg.jvm import CONFLICTS, ensure_callbacks, java_class_name, java_list
from lakecdc.iceberg.live_deletes import is_equality
from lakecdc.iceberg.rewrite_guard import EqualityDeleteGuard, MovedRowsGuard
from lakecdc.iceberg.scan import specs_by_dropped_columns
from lakecdc.iceberg.table import MAIN, IcebergTable, Snapshot
from lakecdc.metadata import names
from lakecdc.metadata.readers import equality_refusal

_MERGING = "commit.manifest-merge.enabled"


@dataclass
class RowChanges:
    """Data and delete files that one ``RowDelta`` adds and removes, and entries for the snapshot summary.

    :param deleted_from: locations of the data files that position deletes among ``deletes`` are for.
    """

    rows: Sequence[Any] = ()
    deletes: Sequence[Any] = ()
    removed_rows: Sequence[Any] = ()
    removed_deletes: Sequence[Any] = ()
    summary: Mapping[str, str] = field(default_factory=dict)
    deleted_from: Sequence[str] = ()


def append_changes(
    table: IcebergTable,
    changes: RowChanges,
    fence: PositionFence,
    *,
    truncate: Any | None = None,
    tag: str | None = None,
    then: Callable[[Any], None] | None = None,
) -> Snapshot:
    """Commit new rows and deletes behind a fence, with the positions in the summary.

    Equality deletes need no other validation: they may move to a later sequence number without harm, so no maintenance
    commit can make an ingestion fail (Iceberg's Flink committer does the same). Position deletes are valid only for the
    snapshot they were computed from, which the fence must know.

    :param fence: refuses the commit if another run has moved the positions.
    :param truncate: expression of rows to remove first, in the same metadata commit.
    :param tag: tag to move to the new snapshot, in the same metadata commit.
    :raises ConflictError: the fence refused, or another writer won too often.
    :raises InputError: the rows to remove share files with later ones.
    """
    mark = str(uuid.uuid4())
    validator = _validator(table, fence, mark)

    def write(transaction: Any) -> None:
        if truncate is not None:
            _truncate(table, transaction, truncate, changes.summary.get(names.JOB))
        delta = _validated(table, transaction.newRowDelta().validateWith(validator), changes, fence.since)
        _row_delta(table, delta, changes, mark).commit()

    def finish(transaction: Any) -> None:
        if tag:
            move_tag(transaction, tag)
        if then is not None:
            then(transaction)

    return _commit(table, mark, MAIN, write, finish)


def commit_aside(
    table: IcebergTable, changes: RowChanges, branch: str, base: Snapshot | None, truncate: Any | None = None
) -> Snapshot:
    """Commit changes to a branch from ``base``, replacing one of the same name; see :func:`append_changes`."""
    mark = str(uuid.uuid4())

    def write(transaction: Any) -> None:
        manage = transaction.manageSnapshots()
        if table.has_branch(branch):
            manage = manage.removeBranch(branch)
        if base is not None:
            manage = manage.createBranch(branch, base.id)
        manage.commit()
        if truncate is not None:
            _truncate(table, transaction, truncate, changes.summary.get(names.JOB), branch)
        delta = _validated(table, transaction.newRowDelta().toBranch(branch), changes, base.id if base else None)
        _row_delta(table, delta, changes, mark).commit()

    return _commit(table, mark, branch, write)


def commit_to_branch(
    table: IcebergTable,
    changes: RowChanges,
    fence: PositionFence,
    branch: str,
    then: Callable[[Any], None],
    published: str = MAIN,
) -> Snapshot:
    """Commit to a branch and publish it as another one, in one metadata commit.

    :param fence: refuses the commit if another run has moved the positions since the branch started; it must know the
        branch's head if the changes have position deletes.
    :param then: further work in the transaction; it must move ``published`` to the branch.
    :raises ConflictError: the fence refused, main is no longer an ancestor of the branch, or another writer won.
    """
    mark = str(uuid.uuid4())
    validator = _validator(table, fence, mark)

    def write(transaction: Any) -> None:
        delta = transaction.newRowDelta().validateWith(validator).toBranch(branch)
        _row_delta(table, _validated(table, delta, changes, fence.since), changes, mark).commit()

    return _commit(table, mark, published, write, then)


def replace_deletes(
    table: IcebergTable,
    changes: RowChanges,
    *,
    start_snapshot_id: int,
    branch: str = MAIN,
    guard: MovedRowsGuard | None = None,
) -> Snapshot:
    """Commit converted or merged delete files.

    This is a ``RowDelta``, never ``RewriteFiles``: its snapshot counts as a delete in every conflict check, while a
    concurrent compaction would overlook a replace and lose the deletes. Concurrent appends and equality deletes do not
    conflict with it.

    :param guard: refuses the commit if it would undo an equality delete.
    :raises ConflictError: one of them is gone or got a deletion vector, or the branch was dropped meanwhile.
    """
    mark = str(uuid.uuid4())

    def commit() -> None:
        # Iceberg would recreate the branch from main
        if branch != MAIN and not table.refresh().has_branch(branch):
            raise ConflictError(f"The branch {branch!r} was dropped.", table=table.name)
        with _committed(table) as source:
            delta = _validated(table, source.newRowDelta().toBranch(branch), changes, start_snapshot_id)
            if (validator := _validator(table, guard, mark)) is not None:
                delta.validateWith(validator)
            _row_delta(table, delta, changes, mark).commit()

    return run_commit(table, commit, mark, branch)


def remove_files(
    table: IcebergTable, rows: Any, fence: FloorFence, *, summary: Mapping[str, str], properties: Mapping[str, str]
) -> Snapshot:
    """Remove the data files whose rows all meet a condition, and set properties, in one metadata commit.

    The files are selected again at each attempt, from the current table.

    :param rows: the condition, an Iceberg expression.
    :raises ConflictError: a file has such rows and others, the fence refused, or another writer won too often.
    """
    mark = str(uuid.uuid4())
    validator = _validator(table, fence, mark)

    def write(transaction: Any) -> None:
        delete = transaction.newDelete().deleteFromRowFilter(rows).validateWith(validator)
        set_summary(delete, summary, mark)
        delete.commit()

    return _commit(table, mark, MAIN, write, lambda transaction: table.update_properties(properties, transaction))


def _validated(table: IcebergTable, delta: Any, changes: RowChanges, start_snapshot_id: int | None) -> Any:
    """Make a Java ``RowDelta`` with position deletes refuse them if their data files are gone since a snapshot."""
    if start_snapshot_id is None or not (changes.deleted_from or changes.removed_deletes):
        return delta
    delta = delta.validateFromSnapshot(start_snapshot_id)
    return delta.validateDataFilesExist(java_list(table.spark, changes.deleted_from)).validateDeletedFiles()


def _in_file_order(deletes: Sequence[Any]) -> list[Any]:
    """Sort delete files so that the deletion vectors of one Puffin file are adjacent and in file order.

    DuckDB 1.5.5 applies vectors of other data files if a manifest mixes those of several Puffin files.
    """
    return sorted(deletes, key=lambda delete: (str(delete.location()), delete.contentOffset() or 0))


def replace_data_files(
    table: IcebergTable,
    changes: RowChanges,
    start: Snapshot,
    *,
    since: Snapshot | None = None,
    branch: str = MAIN,
    guard: EqualityDeleteGuard | None = None,
) -> Snapshot:
    """Commit rewritten data files at the sequence number they were read at.

    Equality deletes committed meanwhile still apply to the new files; a position delete or deletion vector added
    meanwhile for a removed file refuses the commit.

    :param changes: written and removed data files, delete files that applied only to the latter, and delete files of
        the written ones.
    :param start: the snapshot that was read.
    :param since: the snapshot up to which position deletes of removed files are among those of the written ones;
        default: ``start``.
    :param guard: refuses the commit if it would undo an equality delete committed meanwhile.
    :raises ConflictError: a removed file is gone or got new deletes.
    """
    mark = str(uuid.uuid4())

    def commit() -> None:
        with _committed(table) as source:
            rewrite = source.newRewrite().validateFromSnapshot((since or start).id)
            rewrite = rewrite.dataSequenceNumber(start.sequence_number)
            for file in (*changes.removed_rows, *changes.removed_deletes):
                rewrite.deleteFile(file)
            for file in (*changes.rows, *_in_file_order(changes.deletes)):
                rewrite.addFile(file)
            set_summary(rewrite, changes.summary, mark)
            if (validator := _validator(table, guard, mark)) is not None:
                rewrite.validateWith(validator)
            rewrite.toBranch(branch).commit()

    return run_commit(table, commit, mark, branch)


def set_summary(update: Any, summary: Mapping[str, str], mark: str) -> None:
    """Add entries and the commit's mark to the summary of a Java ``SnapshotUpdate``."""
    for key, value in {**summary, names.COMMIT_ID: mark}.items():
        update.set(key, value)


def _validator(table: IcebergTable, validator: CommitValidator | None, mark: str) -> CommitValidator | None:
    """Return the validator of a commit, preceded by the table's lease if this run holds one."""
    if validator is not None:
        validator.mark = mark
    if table.lease is not None:
        validator = LeaseFence(table, validator, mark)
    if validator is not None:
        ensure_callbacks(table.spark)
    return validator


def _commit(
    table: IcebergTable,
    mark: str,
    branch: str,
    write: Callable[[Any], None],
    then: Callable[[Any], None] | None = None,
) -> Snapshot:
    """Commit files and further work in one transaction, with retries."""

    def commit() -> None:
        transaction = table.java.newTransaction()
        with _keep_old_manifests(table, transaction):
            write(transaction)
        if then is not None:
            then(transaction)
        transaction.commitTransaction()

    return run_commit(table, lambda: retry_commit(table, commit), mark, branch)


@contextmanager
def _committed(table: IcebergTable) -> Iterator[Any]:
    """Yield the object to change: the table, or a transaction that keeps manifests and is committed afterwards."""
    if not specs_by_dropped_columns(table):
        yield table.java
        return
    transaction = table.java.newTransaction()
    with _keep_old_manifests(table, transaction):
        yield transaction
    transaction.commitTransaction()


@contextmanager
def _keep_old_manifests(table: IcebergTable, transaction: Any) -> Iterator[None]:
    """Prevent a transaction from merging manifests if some belong to a spec whose column was dropped.

    A commit merges the manifests of every spec that it adds nothing to (``ManifestMergeManager``); these would lose the
    partition values by which readers pair data files with deletes.
    """
    if not specs_by_dropped_columns(table):
        yield
        return
    given = table.properties.get(_MERGING)
    table.update_properties({_MERGING: "false"}, transaction)
    yield
    table.update_properties({_MERGING: given}, transaction)


def _truncate(table: IcebergTable, transaction: Any, rows: Any, job: str | None, branch: str = MAIN) -> None:
    delete = transaction.newDelete().deleteFromRowFilter(rows).toBranch(branch)
    if job:
        delete.set(names.JOB, job)
    try:
        delete.commit()
    except Exception as error:
        if java_class_name(error) not in CONFLICTS:
            raise
        raise InputError(
            "A TRUNCATE arrived after changes that followed it, and the rows before and after it share files.",
            table=table.name,
            hint="Reload the table in full.",
        ) from error


def _row_delta(table: IcebergTable, delta: Any, changes: RowChanges, mark: str) -> Any:
    refuse_equality_deletes(table, changes.deletes)
    for file in changes.rows:
        delta.addRows(file)
    for file in _in_file_order(changes.deletes):
        delta.addDeletes(file)
    for file in changes.removed_rows:
        delta.removeRows(file)
    for file in changes.removed_deletes:
        delta.removeDeletes(file)
    set_summary(delta, changes.summary, mark)
    return delta


def refuse_equality_deletes(table: IcebergTable, deletes: Sequence[Any] | None = None) -> None:
    """Refuse a table whose format version does not allow equality deletes.

    :param deletes: Java ``DeleteFile`` objects to commit, which may be of other kinds; None to refuse any.
    :raises UnsupportedError: saying what to do.
    """
    refusal = equality_refusal(table.format_version)
    if refusal is None:
        return
    if deletes is None or any(map(is_equality, deletes)):
        raise UnsupportedError(refusal[0], table=table.name, hint=refusal[1])


def move_tag(transaction: Any, tag: str) -> None:
    """Move a tag to the new head of ``main`` in a transaction that has committed to it."""
    refs = transaction.table().refs()
    snapshot_id = transaction.table().currentSnapshot().snapshotId()
    manage = transaction.manageSnapshots()
    if refs.containsKey(tag):
        manage.replaceTag(tag, snapshot_id).commit()
    else:
        manage.createTag(tag, snapshot_id).commit()
