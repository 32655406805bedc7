"""Scratch branches: a Spark SQL statement runs on one and is published with a position, or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from lakecdc.contract.errors import ConflictError, LakecdcError
from lakecdc.iceberg.commit import RowChanges, commit_to_branch, move_tag
from lakecdc.iceberg.commit_outcome import retry_commit
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.jvm import listed
from lakecdc.iceberg.lease import give_back, keep_renewed, put
from lakecdc.iceberg.table import MAIN, IcebergTable, Snapshot
from lakecdc.metadata import names
from lakecdc.metadata.lease import Lease
from lakecdc.sql import quoted_column

# expiry removes branches of dead runs after this time
_MAX_AGE_MS = 24 * 3600 * 1000


class HeadMovedError(ConflictError):
    """Another commit came between the creation of the branch and its publication; the statement must run again."""


@contextmanager
def branch(
    table: IcebergTable, base: Snapshot, prefix: str = names.MERGE_BRANCH_PREFIX, lease: Lease | None = None
) -> Iterator[str]:
    """Yield the name of a branch that starts at a snapshot; it is always removed in the end.

    :param base: main's head, if the branch will become the table's state.
    :param lease: taken with the branch and released with it.
    :raises LeaseHeldError: another run holds the lease.
    :raises HeadMovedError: work on the branch failed because another run has published its own and dropped this one.
    """
    name = f"{prefix}{base.id}_{uuid.uuid4().hex[:8]}"

    def create() -> None:
        transaction = table.java.newTransaction()
        if lease is not None:
            put(table, transaction, lease, base)
        manage = transaction.manageSnapshots().createBranch(name, base.id)
        manage.setMaxRefAgeMs(name, _MAX_AGE_MS).commit()
        transaction.commitTransaction()

    retry_commit(table, create)
    table.refresh()
    try:
        with keep_renewed(table, lease):
            yield name
    except LakecdcError:
        raise
    except Exception as error:
        # a statement that continues would recreate the branch, from a main that may lack what it read
        if table.refresh().has_branch(name):
            raise
        raise HeadMovedError("The table's head moved, and the branch was dropped.", table=table.name) from error
    finally:
        remove(table, [name], lease)


def sql_name(table: IcebergTable, name: str) -> str:
    """Return the name of a branch in Spark SQL statements that write to it."""
    return f"{table.sql_name}.{quoted_column('branch_' + name)}"


def publish(
    table: IcebergTable,
    name: str,
    base: Snapshot,
    fence: PositionFence,
    summary: Mapping[str, str],
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Snapshot:
    """Publish a branch as the table's state in one commit.

    The commit adds the summary, moves main forward and the tag of positions with them, and drops scratch branches.
    Branches of other runs cannot be published after this, so they are dropped too.

    :param base: the snapshot the branch started at; main must still be there.
    :raises HeadMovedError: main has moved.
    :raises ConflictError: another run has moved the positions.
    """

    def move(transaction: Any) -> None:
        manage = transaction.manageSnapshots().fastForwardBranch(MAIN, name)
        for stale in _scratch(transaction.table()):
            manage = manage.removeBranch(stale)
        manage.commit()
        if names.POSITIONS in summary:
            move_tag(transaction, names.POSITIONS_TAG)
        table.update_properties(properties, transaction)

    table.refresh()
    head = table.head()
    if head is None or head.id != base.id:
        raise HeadMovedError("The table's head moved.", table=table.name)
    try:
        entries = {**summary, names.BRANCHED_FROM: str(base.id)}
        return commit_to_branch(table, RowChanges(summary=entries), fence, name, move)
    except ConflictError as error:
        table.refresh()
        head = table.head()
        if head is not None and head.id != base.id:
            raise HeadMovedError(error.message, table=table.name, hint=error.hint) from error
        raise


def remove(table: IcebergTable, branch_names: Iterable[str], lease: Lease | None = None) -> None:
    """Remove existing branches, and release a lease with them."""
    branches = list(branch_names)

    def commit() -> None:
        there = [name for name in branches if name in _refs(table.java)]
        transaction = table.java.newTransaction()
        if there:
            manage = transaction.manageSnapshots()
            for name in there:
                manage = manage.removeBranch(name)
            manage.commit()
        if lease is not None:
            give_back(table, transaction, lease)
        transaction.commitTransaction()

    table.refresh()
    retry_commit(table, commit)
    table.refresh()


def remove_stale(table: IcebergTable) -> list[str]:
    """Remove scratch branches that can no longer be published because main has moved; return their names."""
    head = table.head()
    current = f"{names.MERGE_BRANCH_PREFIX}{head.id if head else None}_"
    stale = [name for name in _scratch(table.java) if not name.startswith(current)]
    if stale:
        remove(table, stale)
    return stale


def _scratch(java: Any) -> list[str]:
    return [name for name in _refs(java) if name.startswith(names.MERGE_BRANCH_PREFIX)]


def _refs(java: Any) -> list[str]:
    return [str(name) for name in listed(java.refs().keySet())]
