"""Tags, branches and consumers: changes of any number in one commit, and snapshots named by users."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from lakecdc.contract.errors import ConflictError, InputError, SpecError
from lakecdc.contract.fields import parse_moment
from lakecdc.iceberg.commit_outcome import retry_commit
from lakecdc.iceberg.jvm import java_message, mapping
from lakecdc.iceberg.table import MAIN, IcebergTable, Snapshot
from lakecdc.metadata.consumers import LIMIT, Consumer, check_name, read_consumers
from lakecdc.metadata.periodic_tags import newest_by


@dataclass(frozen=True)
class Ref:
    """A tag or branch, and the age of its snapshot after which expiry may drop it; None: never."""

    snapshot_id: int
    kind: Literal["tag", "branch"]
    max_age_ms: int | None = None

    def is_over(self, snapshot: Snapshot | None) -> bool:
        """Check whether expiry may drop it; the age of a snapshot that does not exist is unknown."""
        return snapshot is not None and self.max_age_ms is not None and _age_ms(snapshot) > self.max_age_ms


def ref_age_ms(snapshot: Snapshot, seconds: float) -> int:
    """Compute the age of a tag or branch that should last some seconds from now.

    Iceberg counts a ref's age from the time of its snapshot, not from its creation.
    """
    return max(_age_ms(snapshot) + int(seconds * 1000), 1)


def now_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return int(time.time() * 1000)


def _age_ms(snapshot: Snapshot) -> int:
    return now_ms() - snapshot.timestamp_ms


def read_refs(table: IcebergTable) -> dict[str, Ref]:
    """Return the table's tags and branches by name, as of its last load or refresh."""
    return {
        str(name): Ref(int(ref.snapshotId()), "branch" if ref.isBranch() else "tag", ref.maxRefAgeMs())
        for name, ref in mapping(table.java.refs()).items()
    }


def change_refs(
    table: IcebergTable,
    refs: dict[str, Ref | None],
    fast_forward: Sequence[str] = (),
    decided_at: int | None = None,
) -> None:
    """Set tags and branches, all or nothing.

    :param refs: the target of each; None drops it.
    :param fast_forward: branches among them whose new snapshot must descend from the current one.
    :param decided_at: snapshot that ``main`` must still have; default: any.
    :raises ConflictError: another writer removed one of the snapshots, changed one of the names, or committed to
        ``main``; nothing was changed.
    """

    try:
        retry_commit(table, lambda: put_refs(table, refs, fast_forward, decided_at=decided_at))
    except Exception as error:
        # the commit may have arrived although its answer was lost
        current = read_refs(table.refresh())
        if all(current.get(name) == ref for name, ref in refs.items()):
            return
        raise ConflictError(
            f"Cannot change tags and branches: {java_message(error)}",
            table=table.name,
            hint="Nothing was changed; run again.",
        ) from error
    table.refresh()


def put_refs(
    table: IcebergTable,
    refs: Mapping[str, Ref | None],
    fast_forward: Sequence[str] = (),
    owner: Any = None,
    decided_at: int | None = None,
) -> None:
    """Commit tags and branches once, in the Java transaction ``owner`` if there is one; see :func:`change_refs`."""
    # this loads the newest metadata, so the refs to compare must be read afterwards
    manage, now = (owner or table.java).manageSnapshots(), read_refs(table)
    if decided_at is not None and now[MAIN].snapshot_id != decided_at:
        raise ConflictError("another writer committed meanwhile", table=table.name)
    for name, ref in refs.items():
        _change(table, manage, name, now.get(name), ref, name in fast_forward)
    manage.commit()


def drop_branch(table: IcebergTable, transaction: Any, name: str, snapshot_id: int | None = None) -> None:
    """Drop a branch in a transaction, if it exists.

    :param snapshot_id: snapshot that the branch must still have at the commit; default: any, or none.
    :raises ConflictError: it has another one, or is gone.
    """
    java = transaction.table().refs().get(name)
    there = java is not None and bool(java.isBranch())
    if snapshot_id is not None:
        if not there or java.snapshotId() != snapshot_id:
            raise ConflictError(f"The branch {name!r} was moved or dropped.", table=table.name, hint="Run again.")
        # a REST catalog compares a branch that is set, but not one that is only dropped
        transaction.manageSnapshots().setMaxRefAgeMs(name, (java.maxRefAgeMs() or 0) + 1).commit()
    if there:
        transaction.manageSnapshots().removeBranch(name).commit()


def _change(table: IcebergTable, manage: Any, name: str, now: Ref | None, ref: Ref | None, forward: bool) -> None:
    if ref is None:
        if now is not None:
            (manage.removeBranch if now.kind == "branch" else manage.removeTag)(name)
        return
    ancestors = table.ancestors_of(new) if forward and (new := table.snapshot(ref.snapshot_id)) else ()
    if forward and (now is None or all(each.id != now.snapshot_id for each in ancestors)):
        raise ConflictError(
            f"Cannot fast-forward branch {name!r}: snapshot {ref.snapshot_id} does not descend from its own.",
            table=table.name,
            hint="Nothing was changed.",
        )
    if now is None:
        (manage.createBranch if ref.kind == "branch" else manage.createTag)(name, ref.snapshot_id)
    elif now.snapshot_id != ref.snapshot_id:
        (manage.replaceBranch if ref.kind == "branch" else manage.replaceTag)(name, ref.snapshot_id)
    if ref.max_age_ms is not None and (now is None or now.max_age_ms != ref.max_age_ms):
        manage.setMaxRefAgeMs(name, ref.max_age_ms)


def named_snapshot(table: IcebergTable, name: str, use: str = "") -> Snapshot:
    """Return the snapshot that a name refers to.

    :param name: an id, a tag, a branch, or an ISO-8601 time: the newest snapshot of ``main`` at that time.
    :param use: continues the error message, such as " for 'x'".
    :raises InputError: the snapshot does not exist or has expired.
    """
    refs = read_refs(table)
    named = refs[name].snapshot_id if name in refs else int(name) if name.isdecimal() else None
    if named is None and (moment := _moment(name)):
        named = newest_by(moments(table.ancestors()), moment)
    snapshot = None if named is None else table.snapshot(named)
    if snapshot is None:
        raise InputError(
            f"The snapshot {name!r}{use} does not exist.",
            table=table.name,
            hint="Use the id of a snapshot that has not expired, a tag, a branch, or an ISO-8601 time.",
        )
    return snapshot


def moments(snapshots: Iterable[Snapshot]) -> list[tuple[int, int]]:
    """Return the ids of snapshots with their times, in milliseconds since 1970."""
    return [(snapshot.id, snapshot.timestamp_ms) for snapshot in snapshots]


def _moment(text: str) -> datetime | None:
    try:
        return parse_moment(text, "moment")
    except SpecError:
        return None


def put_consumer(table: IcebergTable, name: str, snapshot: Snapshot) -> None:
    """Record that a consumer has read up to a snapshot, which may be before its last one.

    Property and tag change in one commit. A new consumer has the default limit, any other keeps its own.

    :raises InputError: the name is invalid.
    """
    present = read_consumers(table.refresh().properties).get(check_name(name, table.name))
    if present is not None and present.snapshot_id == snapshot.id:
        return
    consumer = Consumer(name, snapshot.id, present.limit if present else LIMIT, datetime.now(UTC))
    tag = Ref(snapshot.id, "tag", ref_age_ms(snapshot, consumer.limit))

    def commit() -> None:
        transaction = table.java.newTransaction()
        table.update_properties({consumer.property_name: consumer.encode()}, transaction)
        put_refs(table, {consumer.tag: tag}, owner=transaction)
        transaction.commitTransaction()

    retry_commit(table, commit)
    table.refresh()
