"""A table's lease: taken before a table is rewritten, renewed meanwhile, checked by each commit, and released."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lakecdc.contract.errors import ConflictError
from lakecdc.contract.report import LEASE_HOLDER
from lakecdc.iceberg.commit_outcome import retry_commit
from lakecdc.iceberg.jvm import java_message
from lakecdc.iceberg.refs import Ref, now_ms, read_refs, ref_age_ms
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.metadata import lease as length
from lakecdc.metadata.lease import Lease, read_lease
from lakecdc.metadata.names import LEASE, LEASE_TAG, LEASE_TAKEN_PREFIX

log = logging.getLogger(__name__)

# lifetime of a takeover tag, longer than any contender that saw the lease may need it
_TAKEN_SECONDS = 3600.0
# lifetime of the lease's own tag on a table that is never rewritten again; unrelated to the lease's term
_TAG_SECONDS = 24 * 3600.0
_POLL_SECONDS = 1.0


class LeaseHeldError(ConflictError):
    """Another run holds the table's lease and keeps renewing it.

    Remedy: Wait: the task is rescheduled every minute until the run that the message names has ended, for six hours.
    """


class LeaseLostError(ConflictError):
    """The lease has ended, or another run took it over."""


def new_lease(table: IcebergTable, job: str) -> Lease:
    """Create a lease for a run of a job to take."""
    application = table.spark.sparkContext.applicationId
    return Lease(uuid.uuid4().hex[:12], f"{job} in Spark application {application}", 0)


def put(table: IcebergTable, transaction: Any, lease: Lease, snapshot: Snapshot, silent: Lease | None = None) -> None:
    """Take a free or expired lease in a transaction on the table as refreshed.

    Creating a tag asserts that it is absent, also in a REST catalog, where setting a property asserts nothing: of two
    runs that take a free lease only one creates its tag, and of two that take over a lease only one creates the tag of
    its token.

    :param silent: result of :func:`await_free`: this lease is over, unless it was renewed since.
    :raises LeaseHeldError: it is neither free nor expired.
    """
    refs, now = read_refs(table), now_ms()
    current = _current_lease(table, refs)
    if current is not None and current.token == lease.token:
        return
    if current is not None and current != silent and not current.may_be_taken_over(now):
        raise _refusal(table, current)
    tag, seconds = (
        (LEASE_TAG, _TAG_SECONDS) if current is None else (f"{LEASE_TAKEN_PREFIX}{current.token}", _TAKEN_SECONDS)
    )
    manage = transaction.manageSnapshots()
    # first, because a late renewal may have restored a token that was taken over before
    for name, ref in refs.items():
        # old takeovers no longer matter for any contender
        if name.startswith(LEASE_TAKEN_PREFIX) and ref.is_over(table.snapshot(ref.snapshot_id)):
            manage = manage.removeTag(name)
    manage.createTag(tag, snapshot.id).setMaxRefAgeMs(tag, ref_age_ms(snapshot, seconds)).commit()
    if current is not None:
        log.warning("%s: taking over the lease of %s, which was not renewed", table.name, current.holder)
    table.update_properties({LEASE: lease.renewed(now).encode()}, transaction)


def await_free(table: IcebergTable, seconds: float = float("inf")) -> Lease | None:
    """Wait until no run holds the lease; a killed holder does not renew it.

    This takes at most a lease's term and its grace period by this machine's clock, because the lease's recorded end may
    be years ahead if its holder's clock was wrong.

    :param seconds: maximum wait.
    :return: the lease that was not renewed for that long; None if there is none, or it ended.
    :raises LeaseHeldError: its holder renewed it, or another one holds it, or the wait is over.
    """
    first, begun = _current_lease(table.refresh(), read_refs(table)), time.monotonic()
    lease = first
    while lease is not None and not lease.may_be_taken_over(now_ms()):
        waited = time.monotonic() - begun
        if lease != first or waited > seconds:
            raise _refusal(table, lease)
        if waited > lease.seconds_of_silence:
            log.warning("%s: the lease of %s ends too late; clocks differ", table.name, lease.holder)
            return lease
        time.sleep(_POLL_SECONDS)
        lease = _current_lease(table.refresh(), read_refs(table))
    return None


def is_held(table: IcebergTable) -> bool:
    """Check whether a run may hold the lease; wait if its end is implausible."""
    lease = _current_lease(table, read_refs(table))
    if lease is None or lease.may_be_taken_over(now_ms()):
        return False
    if lease.is_beyond_term(now_ms()):
        try:
            await_free(table)
        except LeaseHeldError:
            return True
        return False
    return True


def lease_if_free(table: IcebergTable, job: str) -> Lease | None:
    """Return a lease for a run that must not wait long: only until an active holder would renew its own.

    This refreshes the table, and returns None if another run still holds the lease.
    """
    try:
        await_free(table, length.SECONDS / 3 + _POLL_SECONDS)
    except LeaseHeldError as error:
        log.info("%s: %s %s continues without it.", table.name, error.message, job)
        return None
    return new_lease(table, job)


@contextmanager
def hold_if_free(table: IcebergTable, job: str) -> Iterator[None]:
    """Hold the table's lease inside the context, or continue without it if another run still has it."""
    lease, head = lease_if_free(table, job), table.head()
    if lease is None or head is None:
        yield
        return

    def change(apply: Callable[[Any], None]) -> None:
        def commit() -> None:
            transaction = table.java.newTransaction()
            apply(transaction)
            transaction.commitTransaction()

        retry_commit(table, commit)
        table.refresh()

    try:
        change(lambda transaction: put(table, transaction, lease, head))
    except LeaseHeldError as error:
        log.info("%s: %s %s continues without it.", table.name, error.message, job)
        yield
        return
    try:
        with keep_renewed(table, lease):
            yield
    finally:
        try:
            table.refresh()
            change(lambda transaction: give_back(table, transaction, lease))
        except Exception as error:
            # it ends by itself, and its work is done
            log.warning("%s: cannot release the lease: %s", table.name, java_message(error))


def renew(table: IcebergTable, lease: Lease) -> None:
    """Renew a lease for its whole term.

    :raises LeaseLostError: it has ended, or belongs to another run.
    """

    def commit() -> None:
        refs, now = read_refs(table), now_ms()
        current = _current_lease(table, refs)
        if current is None or current.token != lease.token or not current.may_be_renewed(now):
            raise LeaseLostError("The table's lease was not renewed in time.", table=table.name, hint="Run again.")
        transaction = table.java.newTransaction()
        # Iceberg does not rebase changes of tags on other metadata, so it does not rebase this commit
        snapshot = table.snapshot(refs[LEASE_TAG].snapshot_id)
        if snapshot is not None:
            age = ref_age_ms(snapshot, _TAG_SECONDS)
            transaction.manageSnapshots().setMaxRefAgeMs(LEASE_TAG, age).commit()
        table.update_properties({LEASE: current.renewed(now).encode()}, transaction)
        transaction.commitTransaction()

    table.refresh()
    retry_commit(table, commit)


def give_back(table: IcebergTable, transaction: Any, lease: Lease) -> None:
    """Release a lease in a transaction, if it still belongs to the run and has not ended."""
    current = _current_lease(table, read_refs(table))
    if current is not None and current.token == lease.token and current.may_be_renewed(now_ms()):
        transaction.manageSnapshots().removeTag(LEASE_TAG).commit()
        table.update_properties({LEASE: None}, transaction)


def _renew_until(table: IcebergTable, lease: Lease, over: threading.Event) -> None:
    """Renew a lease after each third of its term.

    It loads the table again, because the job's own must not refresh by itself.
    """
    while not over.wait(length.SECONDS / 3):
        try:
            renew(IcebergTable(table.spark, table.catalog, table.name), lease)
        except LeaseLostError as error:
            log.warning("%s: %s", table.name, error)
            return
        except Exception as error:
            log.warning("%s: cannot renew the lease: %s", table.name, java_message(error))


@contextmanager
def keep_renewed(table: IcebergTable, lease: Lease | None) -> Iterator[None]:
    """Renew a taken lease inside the context, if any, and make the run's commits check it."""
    if lease is None:
        yield
        return
    over = threading.Event()
    name = f"lease of {table.name}"
    renewal = threading.Thread(target=_renew_until, args=(table, lease, over), name=name, daemon=True)
    table.lease = lease.token
    renewal.start()
    try:
        yield
    finally:
        over.set()
        renewal.join()
        table.lease = None


def _current_lease(table: IcebergTable, refs: dict[str, Ref]) -> Lease | None:
    return read_lease(table.properties) or Lease("unnamed", "another run", 0) if LEASE_TAG in refs else None


def _refusal(table: IcebergTable, current: Lease) -> LeaseHeldError:
    return LeaseHeldError(
        f"The table's lease is held by {current.holder}.",
        table=table.name,
        hint="Nothing was changed; run again later.",
        **{LEASE_HOLDER: current.holder},
    )
