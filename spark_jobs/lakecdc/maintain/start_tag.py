"""Protect a long job's start snapshot from expiry by a short-lived tag, together with a lease."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.commit_outcome import retry_commit
from lakecdc.iceberg.jvm import java_message
from lakecdc.iceberg.lease import LeaseHeldError, await_free, give_back, keep_renewed, new_lease, put
from lakecdc.iceberg.refs import Ref, read_refs, ref_age_ms
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.metadata.lease import Lease
from lakecdc.metadata.names import JOB_TAG_PREFIX

log = logging.getLogger(__name__)

#: seconds after which a tag that its job could not remove (killed, catalog unreachable) no longer protects a snapshot
MAX_AGE_SECONDS = 24 * 3600.0


@contextmanager
def start_tag(table: IcebergTable, snapshot: Snapshot, job: str, *, leased: bool = True) -> Iterator[str]:
    """Tag the start snapshot of a job, and hold the table's lease, inside the context.

    Without the tag a concurrent expiry deletes files that the job still reads, and the job's commit cannot determine
    the history since its start. Stale tags of dead jobs are removed first.

    :param snapshot: read by the job; the tag protects its files, not later snapshots.
    :param leased: whether such jobs exclude each other. A lease that this run already holds is reused.
    :raises LeaseHeldError: another live run holds the lease.
    :raises ConflictError: the snapshot has already expired.
    """
    tag = f"{JOB_TAG_PREFIX}{job}-{uuid.uuid4().hex[:12]}"
    for stale in stale_tags(read_refs(table.refresh()), table.snapshot):
        _remove(table, stale)
    lease = new_lease(table, job) if leased and table.lease is None else None
    try:
        _create(table, tag, snapshot, lease)
    except LeaseHeldError:
        silent = await_free(table)
        _create(table, tag, snapshot, lease, silent)
    try:
        with keep_renewed(table, lease):
            yield tag
    finally:
        _remove(table, tag, lease)


@contextmanager
def numbered_tag(table: IcebergTable, snapshot: Snapshot, series: str, above: int) -> Iterator[int]:
    """Reserve a number that no other run has inside the context: two runs cannot create the same tag.

    :param series: of the numbers, part of the tag's name.
    :param above: the number is higher than this and than the numbers of all runs of the series.
    """
    prefix = f"{JOB_TAG_PREFIX}{series}-"

    def commit() -> int:
        tags = [name.removeprefix(prefix) for name in read_refs(table) if name.startswith(prefix)]
        number = max(above, *(int(tag) for tag in tags if tag.isdecimal()), 0) + 1
        manage = table.java.manageSnapshots().createTag(f"{prefix}{number}", snapshot.id)
        manage.setMaxRefAgeMs(f"{prefix}{number}", ref_age_ms(snapshot, MAX_AGE_SECONDS)).commit()
        return number

    table.refresh()
    number = retry_commit(table, commit)
    try:
        yield number
    finally:
        _remove(table, f"{prefix}{number}")


def stale_tags(refs: Mapping[str, Ref], snapshot_of: Callable[[int], Snapshot | None]) -> list[str]:
    """Return the names of the tags of jobs that died without removing them."""
    return [tag for tag, ref in job_tags(refs).items() if ref.is_over(snapshot_of(ref.snapshot_id))]


def job_tags(refs: Mapping[str, Ref]) -> dict[str, Ref]:
    """Return the tags of running and dead jobs by name."""
    return {name: ref for name, ref in refs.items() if name.startswith(JOB_TAG_PREFIX)}


def _create(
    table: IcebergTable, tag: str, snapshot: Snapshot, lease: Lease | None, silent: Lease | None = None
) -> None:
    def commit() -> None:
        if tag in read_refs(table):
            return
        transaction = table.java.newTransaction()
        if lease is not None:
            put(table, transaction, lease, snapshot, silent)
        manage = transaction.manageSnapshots().createTag(tag, snapshot.id)
        manage.setMaxRefAgeMs(tag, ref_age_ms(snapshot, MAX_AGE_SECONDS)).commit()
        transaction.commitTransaction()

    try:
        retry_commit(table, commit)
    except LeaseHeldError:
        raise
    except Exception as error:
        if table.refresh().snapshot(snapshot.id) is not None:
            raise
        raise ConflictError(
            f"The start snapshot {snapshot.id} has expired: {java_message(error)}",
            table=table.name,
            hint="Nothing was changed; run again.",
        ) from error


def _remove(table: IcebergTable, tag: str, lease: Lease | None = None) -> None:
    """Remove a tag and a lease without raising: both expire anyway, and the job's own error matters more."""

    def commit() -> None:
        transaction = table.java.newTransaction()
        if table.java.refs().containsKey(tag):
            transaction.manageSnapshots().removeTag(tag).commit()
        if lease is not None:
            give_back(table, transaction, lease)
        transaction.commitTransaction()

    try:
        table.refresh()
        retry_commit(table, commit)
    except Exception as error:
        log.warning("%s: tag %s was not removed: %s", table.name, tag, java_message(error))
