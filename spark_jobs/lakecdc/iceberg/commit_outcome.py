"""Execution of commits: retries, and the meaning of their errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from lakecdc.contract.errors import CommitStateUnknownError, ConflictError
from lakecdc.contract.secrets import mask
from lakecdc.iceberg.explain import unknown_commit
from lakecdc.iceberg.jvm import COMMIT_STATE_UNKNOWN, CONFLICTS, java_class_name, java_message
from lakecdc.iceberg.table import MAIN, IcebergTable, Snapshot
from lakecdc.metadata import names

log = logging.getLogger(__name__)
T = TypeVar("T")


def run_commit(table: IcebergTable, commit: Callable[[], None], mark: str, branch: str = MAIN) -> Snapshot:
    """Execute a commit, interpret its errors and return its snapshot.

    The catalog's answer may be lost, or wrong (see :mod:`lakecdc.iceberg.lost_answers`). So after any error the table
    is searched for the commit's mark before it counts as a conflict, after which the caller deletes its files.

    :param mark: commit id in the summary of the commit's last snapshot.
    :raises ConflictError: it was refused.
    :raises CommitStateUnknownError: the table does not show it, or cannot be read.
    """
    try:
        with conflict_errors(table, "The commit was refused", "Nothing was published; run again."):
            commit()
    except Exception as error:
        try:
            arrived = find_commit(table, mark, branch)
        except Exception:
            raise unknown_commit(table.name) from error
        if arrived is None:
            raise
        log.warning("%s: the commit arrived although it reported: %s", table.name, mask(java_message(error)))
        return arrived
    committed = find_commit(table, mark, branch)
    if committed is None:
        raise CommitStateUnknownError("The commit returned, but the table does not show it.", table=table.name)
    return committed


@contextmanager
def conflict_errors(table: IcebergTable, what: str, hint: str) -> Iterator[None]:
    """Run a commit that cannot have arrived if it fails, and raise its conflicts as :class:`ConflictError`.

    :raises ConflictError: another writer was faster.
    :raises CommitStateUnknownError: the catalog did not confirm or deny it.
    """
    try:
        yield
    except Exception as error:
        kind = java_class_name(error)
        if kind == COMMIT_STATE_UNKNOWN:
            raise unknown_commit(table.name) from error
        if kind in CONFLICTS or _overtaken(error):
            raise ConflictError(f"{what}: {java_message(error)}", table=table.name, hint=hint) from error
        raise


def _overtaken(error: Exception) -> bool:
    """Check whether the start snapshot left the branch, or the table's format was upgraded since.

    That happens by a rollback or another job's expiry. Iceberg reports an illegal argument, which Spark converts.
    """
    messages = (
        "is not an ancestor of",
        "not an ancestor",
        "does not exist: lakecdc_merge_",
        "Must use DVs for position deletes",
    )
    return type(error).__name__ == "IllegalArgumentException" and any(part in str(error) for part in messages)


def find_commit(table: IcebergTable, mark: str, branch: str = MAIN) -> Snapshot | None:
    """Find the snapshot of a branch with a commit's mark in current metadata."""
    table.refresh()
    return next((s for s in table.ancestors(branch) if s.summary.get(names.COMMIT_ID) == mark), None)


class MetadataMovedError(ConflictError):
    """The table has changed since the commit was prepared."""


_ATTEMPTS = 20


def retry_commit(table: IcebergTable, commit: Callable[[], T]) -> T:
    """Execute a commit that creates, moves or removes branches or tags, with at most 20 attempts.

    Iceberg retries a commit of files by itself. It retries one of references, alone or in a transaction, with its
    original metadata (``UpdateSnapshotReferencesOperation`` of 1.12), so that any other commit in between fails it
    however many retries the table allows.

    :param commit: starts from the table's metadata at each call.
    """
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

    attempts = Retrying(
        retry=retry_if_exception(_is_overtaken),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.05, max=2),
        before_sleep=lambda _: _refresh(table),
        reraise=True,
    )
    return attempts(commit)


def _is_overtaken(error: BaseException) -> bool:
    return isinstance(error, MetadataMovedError) or java_class_name(error) == "CommitFailedException"


def _refresh(table: IcebergTable) -> None:
    table.refresh()


@contextmanager
def discarded_on_conflict(discard: Callable[[], object]) -> Iterator[None]:
    """Discard staged files if their commit is refused; after any other error it may have arrived."""
    try:
        yield
    except ConflictError:
        discard()
        raise
