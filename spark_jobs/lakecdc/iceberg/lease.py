"""A table's lease: taken before a table is rewritten, renewed meanwhile, looked at by each commit, and given back."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import ConflictError
from lakecdc.contract.report import LEASE_HOLDER
from lakecdc.iceberg.jvm import java_message
from lakecdc.iceberg.refs import Ref, now_ms, read_refs, ref_age_ms
from lakecdc.iceberg.retry import retried
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata import lease as length
from lakecdc.metadata.lease import Lease, read_lease
from lakecdc.metadata.names import LEASE, LEASE_TAG, LEASE_TAKEN_PREFIX

if TYPE_CHECKING:
    from lakecdc.iceberg.table import Snapshot

log = logging.getLogger(__name__)

# a tag that tells of a takeover stays longer than any contender may need that has seen the lease before
_TAKEN_SECONDS = 3600.0
# life of the lease's own tag: no measure of the lease, but of how long it stays of a table that nobody rewrites again
_TAG_SECONDS = 24 * 3600.0
_POLL_SECONDS = 1.0


class LeaseHeldError(ConflictError):
    """Another run holds the table's lease and goes on renewing it."""


class LeaseLostError(ConflictError):
    """The lease has ended, or another run has taken it over."""


def new_lease(table: IcebergTable, job: str) -> Lease:
    """A lease for a run to take.

    :param job: name of the job, for people who read who holds it.
    """
    application = table.spark.sparkContext.applicationId
    return Lease(uuid.uuid4().hex[:12], f"{job} in Spark application {application}", 0)


def put(table: IcebergTable, transaction: Any, lease: Lease, snapshot: Snapshot, silent: Lease | None = None) -> None:
    """Take a free lease, or one whose time is over, in a transaction on the table as it was refreshed.

    To create a tag asserts that it is absent, also in a REST catalog, where to set a property asserts nothing: of two
    who take a free lease one creates its tag, of two who take over a lease one creates the tag of its token.

    :param snapshot: the one that the run starts from.
    :param silent: what :func:`await_free` has returned: this lease is over, unless it has been renewed since.
    :raises LeaseHeldError: it is neither.
    """
    refs, now = read_refs(table), now_ms()
    held = _held(table, refs)
    if held is not None and held.token == lease.token:
        return
    if held is not None and held != silent and not held.may_be_taken_over(now):
        raise _refusal(table, held)
    tag, seconds = (LEASE_TAG, _TAG_SECONDS) if held is None else (f"{LEASE_TAKEN_PREFIX}{held.token}", _TAKEN_SECONDS)
    manage = transaction.manageSnapshots()
    # first, since a renewal that came too late may have put a token back that was taken over before
    for stale in _over(table, refs):
        manage = manage.removeTag(stale)
    manage.createTag(tag, snapshot.id).setMaxRefAgeMs(tag, ref_age_ms(snapshot, seconds)).commit()
    if held is not None:
        log.warning("%s: the lease of %s was not renewed and is taken over", table.name, held.holder)
    transaction.updateProperties().set(LEASE, lease.renewed(now).encode()).commit()


def await_free(table: IcebergTable, seconds: float = float("inf")) -> Lease | None:
    """Wait until no run holds the lease: a holder that was killed does not renew it.

    It lasts as long as a lease and the grace after it at the longest, by this machine's clock: the end that the lease
    tells may lie years ahead, if its holder's clock was wrong.

    :param seconds: after which the wait ends in any case.
    :return: the lease that was not renewed for that long; None if there is none, or its own end has come.
    :raises LeaseHeldError: its holder has renewed it, or another one holds it, or the wait has ended.
    """
    first, begun = _held(table.refresh(), read_refs(table)), time.monotonic()
    lease = first
    while lease is not None and not lease.may_be_taken_over(now_ms()):
        waited = time.monotonic() - begun
        if lease != first or waited > seconds:
            raise _refusal(table, lease)
        if waited > lease.seconds_of_silence:
            log.warning("%s: the lease of %s ends too late: clocks differ", table.name, lease.holder)
            return lease
        time.sleep(_POLL_SECONDS)
        lease = _held(table.refresh(), read_refs(table))
    return None


def is_held(table: IcebergTable) -> bool:
    """Tell whether a run may hold the lease; one whose end cannot be right is watched until it is renewed or over."""
    lease = _held(table, read_refs(table))
    if lease is None or lease.may_be_taken_over(now_ms()):
        return False
    if lease.is_beyond_term(now_ms()):
        try:
            await_free(table)
        except LeaseHeldError:
            return True
        return False
    return True


def lease_unless_held(table: IcebergTable, job: str) -> Lease | None:
    """A lease for a run that must not be held up for long: it waits until a holder that works would renew its own.

    The table is refreshed by the look.

    :param job: name of the job.
    :return: one to take; None if another run holds it still.
    """
    try:
        await_free(table, length.SECONDS / 3 + _POLL_SECONDS)
    except LeaseHeldError as error:
        log.info("%s: %s %s goes on without it.", table.name, error.message, job)
        return None
    return new_lease(table, job)


def renew(table: IcebergTable, lease: Lease) -> None:
    """Renew a lease for its whole length from now on.

    :raises LeaseLostError: its time is over, or it is another's.
    """

    def commit() -> None:
        refs, now = read_refs(table), now_ms()
        held = _held(table, refs)
        if held is None or held.token != lease.token or not held.may_be_renewed(now):
            raise LeaseLostError("The table's lease was not renewed in time.", table=table.name, hint="Run again.")
        transaction = table.java.newTransaction()
        # a change of tags is not carried over to other metadata, so that this commit is not either
        snapshot = table.snapshot(refs[LEASE_TAG].snapshot_id)
        if snapshot is not None:
            age = ref_age_ms(snapshot, _TAG_SECONDS)
            transaction.manageSnapshots().setMaxRefAgeMs(LEASE_TAG, age).commit()
        transaction.updateProperties().set(LEASE, held.renewed(now).encode()).commit()
        transaction.commitTransaction()

    table.refresh()
    retried(table, commit)


def give_back(table: IcebergTable, transaction: Any, lease: Lease) -> None:
    """Give a lease back in a transaction, if it is still the run's own and its time is not over."""
    held = _held(table, read_refs(table))
    if held is not None and held.token == lease.token and held.may_be_renewed(now_ms()):
        transaction.manageSnapshots().removeTag(LEASE_TAG).commit()
        transaction.updateProperties().remove(LEASE).commit()


class Renewal(threading.Thread):
    """Renews a lease after each third of its length, until it is told to stop.

    :param table: is loaded anew: the job's own must not move on by itself.
    """

    def __init__(self, table: IcebergTable, lease: Lease) -> None:
        super().__init__(name=f"lease of {table.name}", daemon=True)
        self._table, self._lease, self._stopped = table, lease, threading.Event()

    def run(self) -> None:
        """Called by the thread."""
        table = self._table
        while not self._stopped.wait(length.SECONDS / 3):
            try:
                renew(IcebergTable(table.spark, table.catalog, table.name), self._lease)
            except LeaseLostError as error:
                log.warning("%s: %s", table.name, error)
                return
            except Exception as error:
                log.warning("%s: the lease was not renewed: %s", table.name, java_message(error))

    def stop(self) -> None:
        """Renew no more."""
        self._stopped.set()
        self.join()


@contextmanager
def held(table: IcebergTable, lease: Lease | None) -> Iterator[None]:
    """Renew a lease that the run has taken, and let its commits look at it.

    :param lease: None if it has taken none.
    """
    if lease is None:
        yield
        return
    renewal, table.lease = Renewal(table, lease), lease.token
    renewal.start()
    try:
        yield
    finally:
        renewal.stop()
        table.lease = None


def _held(table: IcebergTable, refs: dict[str, Ref]) -> Lease | None:
    """The lease, whether its time is over or not."""
    return read_lease(table.properties) or Lease("unnamed", "somebody", 0) if LEASE_TAG in refs else None


def _refusal(table: IcebergTable, held: Lease) -> LeaseHeldError:
    return LeaseHeldError(
        f"The table's lease is held by {held.holder}.",
        table=table.name,
        hint="Nothing was changed; run again later.",
        **{LEASE_HOLDER: held.holder},
    )


def _over(table: IcebergTable, refs: dict[str, Ref]) -> list[str]:
    """Tags of takeovers that are so long ago that nobody can contend for those leases any more."""
    return [
        tag
        for tag, ref in refs.items()
        if tag.startswith(LEASE_TAKEN_PREFIX) and ref.is_over(table.snapshot(ref.snapshot_id))
    ]
