"""Manage slot, publication and lock at the source, and read its identity."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from lakecdc.contract.errors import ConflictError, InputError, SourceUnavailableError
from lakecdc.ingest.sources.postgres.catalog import SourceTable
from lakecdc.ingest.sources.postgres.connect import OLDEST, Address, Session, explain, one
from lakecdc.model.positions import lsn, lsn_text

log = logging.getLogger(__name__)

_ACTIVE_SECONDS = 20.0
# the server takes a moment to notice that the previous run's session is closed
_LOCK_SECONDS = 2.0
_POLL_SECONDS = 0.2
_FLUSH_SECONDS = 1.0
# a new slot waits for all open transactions; lock_timeout ends the wait, statement_timeout does not
_TRANSACTION_SECONDS = 1800
_OLDEST_TRANSACTION = """
SELECT l.pid, a.usename, a.application_name, a.state, a.xact_start::timestamptz(0)::text
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
  AND l.pid IS DISTINCT FROM pg_backend_pid()
ORDER BY age(l.transactionid) DESC LIMIT 1
"""
PUBLISHED = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"
_SLOT = """
SELECT plugin, database, active_pid, confirmed_flush_lsn::text, wal_status,
  pg_wal_lsn_diff(pg_current_wal_flush_lsn(), restart_lsn)::bigint
FROM pg_replication_slots WHERE slot_name = %s
"""


@dataclass(frozen=True)
class Slot:
    """A replication slot.

    :param plugin: output plugin; None for a physical slot.
    :param active_pid: server process that uses it now.
    :param confirmed: position (LSN as a number) before which the slot has no log.
    :param lost: the server has removed log that the slot needs.
    :param lag_bytes: bytes of log on the source's disk for the slot.
    """

    name: str
    plugin: str | None
    database: str | None
    active_pid: int | None
    confirmed: int
    lost: bool
    lag_bytes: int


def check_server(session: Session) -> None:
    """Refuse a server that is too old, a standby, or without logical decoding."""
    if session.info.server_version < OLDEST:
        raise InputError(f"The source is Postgres {session.info.server_version // 10000}; 13 or newer is needed.")
    standby, level = one(session, "SELECT pg_is_in_recovery(), current_setting('wal_level')")
    if standby:
        raise InputError("The source is a standby.", hint="Use the primary's address; the slot must be there.")
    if level != "logical":
        raise InputError(
            f"The source has wal_level = {level}, so its log has no row changes.",
            hint="Run ALTER SYSTEM SET wal_level = 'logical' and restart the source.",
        )


def identity(session: Session) -> str:
    """Return the source's identity: the cluster's identifier and its timeline.

    After a failover or restore, positions in a cluster continue on another timeline.
    """
    statement = (
        "SELECT system_identifier::text, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) "
        "FROM pg_control_system()"
    )
    system, timeline = one(session, statement)
    return f"{system}:{int(timeline, 16)}"


def now(session: Session) -> datetime:
    moment: datetime = one(session, "SELECT clock_timestamp()")[0]
    return moment


def log_end(session: Session) -> tuple[int, datetime]:
    """Return the current end of the log and the clock before it; transactions acknowledged by then are on disk."""
    clock, inserted = one(session, "SELECT clock_timestamp(), pg_current_wal_insert_lsn()::text")
    deadline = time.monotonic() + _FLUSH_SECONDS
    while True:
        (flushed,) = one(session, "SELECT pg_current_wal_flush_lsn()::text")
        # commits with synchronous_commit = off arrive within three times wal_writer_delay
        if lsn(flushed) >= lsn(inserted) or time.monotonic() > deadline:
            return lsn(flushed), clock
        time.sleep(0.02)


def lock(session: Session, slot: str, max_wait: float = _LOCK_SECONDS) -> None:
    """Lock the slot for one run; the lock ends with the session.

    :param max_wait: seconds to wait for another run.
    :raises ConflictError: another run has the lock.
    """
    deadline = time.monotonic() + max(max_wait, _LOCK_SECONDS)
    while not one(session, "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", f"lakecdc {slot}")[0]:
        if time.monotonic() > deadline:
            raise ConflictError(
                f"Another run is reading the slot {slot!r}.",
                hint="Wait until it ends. If it was killed, the source notices within moments: run again.",
            )
        time.sleep(_POLL_SECONDS)


def find_slot(session: Session, name: str) -> Slot | None:
    row = session.execute(_SLOT, (name,)).fetchone()
    if row is None:
        return None
    plugin, database, pid, confirmed, status, lag = row
    return Slot(name, plugin, database, pid, lsn(confirmed or "0/0"), status == "lost", int(lag or 0))


def check_ours(session: Session, slot: Slot) -> None:
    """Refuse a slot of another plugin or database."""
    if slot.plugin != "pgoutput" or slot.database != session.info.dbname:
        raise InputError(
            f"The slot {slot.name!r} belongs to database {slot.database} and plugin {slot.plugin}.",
            hint="Choose another source.slot; lakecdc did not create this one.",
        )


def usable_slot(session: Session, name: str) -> Slot | None:
    """Return the slot once no process of an earlier run uses it; None if it does not exist.

    :raises InputError: it is not ours, see :func:`check_ours`.
    :raises ConflictError: it stays in use.
    """
    deadline = time.monotonic() + _ACTIVE_SECONDS
    while True:
        slot = find_slot(session, name)
        if slot is None:
            return None
        check_ours(session, slot)
        if slot.active_pid is None:
            return slot
        if time.monotonic() > deadline:
            raise ConflictError(
                f"The slot {name!r} is in use by the server process {slot.active_pid}.",
                hint="Only one reader can use a slot: stop the other, or choose another source.slot.",
            )
        time.sleep(_POLL_SECONDS)


@contextmanager
def bounded_wait(where: Address, session: Session, name: str) -> Iterator[None]:
    """Limit the time that creating a slot in ``session`` waits for open transactions at the source.

    :raises LakecdcError: the source refuses, or a transaction stays open for too long.
    """
    import psycopg

    try:
        session.execute(f"SET lock_timeout = '{_TRANSACTION_SECONDS}s'".encode())
        # no statement may follow: it would end the session's exported snapshot
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise SourceUnavailableError(
            f"The slot {name!r} cannot be created: a transaction of Postgres at {where.place} has been open for more "
            f"than {_TRANSACTION_SECONDS} seconds since, {_oldest_transaction(session)}.",
            hint="A slot begins once every transaction that was open has ended. End it (SELECT "
            "pg_terminate_backend(…), or ROLLBACK PREPARED …), or run again later.",
        ) from error
    except psycopg.Error as error:
        raise explain(error, where, f"create the slot {name!r}") from error


def _oldest_transaction(session: Session) -> str:
    row = session.execute(_OLDEST_TRANSACTION).fetchone()
    if row is None:
        return "which has ended meanwhile"
    if row[0] is None:
        return "a prepared one (see pg_prepared_xacts)"
    pid, user, application, state, begin = row
    known = [f"user {user}", f"application {application!r}", state, f"since {begin}" if begin else None]
    return f"that of server process {pid} ({', '.join(filter(None, known))})"


def advance(session: Session, slot: str, to: int) -> int:
    """Let the source remove the log before a position; return the slot's position.

    :raises InputError: the slot no longer exists.
    """
    state = find_slot(session, slot)
    if state is None:
        raise InputError(
            f"The slot {slot!r} was dropped while it was read.",
            hint='Run once with "reload": ["*"] in options to reload the tables with a new slot.',
        )
    if to <= state.confirmed:
        return state.confirmed
    (end,) = one(session, "SELECT end_lsn::text FROM pg_replication_slot_advance(%s, %s::pg_lsn)", slot, lsn_text(to))
    return lsn(end)


class Publication:
    """The publication that selects the tables of the log."""

    def __init__(self, session: Session, where: Address, name: str) -> None:
        self._session, self._where, self.name = session, where, name

    def check(self) -> bool:
        """Check whether the publication exists.

        :raises InputError: the publication leaves something out.
        """
        statement = (
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot "
            "FROM pg_publication WHERE pubname = %s"
        )
        row = self._session.execute(statement, (self.name,)).fetchone()
        if row is not None and not all(row):
            raise InputError(
                f"The publication {self.name!r} leaves out kinds of changes, or publishes partitions one by one.",
                hint=f"Run ALTER PUBLICATION {self.name} SET ({PUBLISHED}).",
            )
        return row is not None

    def tables(self) -> set[tuple[str, str]]:
        """Return schema and name of the published tables."""
        statement = "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s"
        return {(row[0], row[1]) for row in self._session.execute(statement, (self.name,))}

    def listed(self) -> set[str]:
        """Return the individually listed tables, ``schema.table``; empty if it is for all tables or a schema."""
        statement = (
            "SELECT n.nspname || '.' || c.relname FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid "
            "JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s"
        )
        return {row[0] for row in self._session.execute(statement, (self.name,))}

    def check_filters(self, table: SourceTable) -> None:
        """Refuse a table with a row filter, or a column list that lacks a column."""
        if self._session.info.server_version < 150000:
            return
        statement = (
            "SELECT rowfilter, attnames::text[] FROM pg_publication_tables "
            "WHERE pubname = %s AND schemaname = %s AND tablename = %s"
        )
        row = self._session.execute(statement, (self.name, table.schema, table.name)).fetchone()
        if row is None:
            return
        generated = {c.name for c in table.columns if c.generated}
        hidden = {c.name for c in table.columns} - set(row[1]) - set(table.target.exclude_columns) - generated
        if row[0] or hidden:
            part = f"only rows with {row[0]}" if row[0] else f"not the column {sorted(hidden)[0]!r}"
            raise InputError(
                f"The publication {self.name!r} publishes {part} of {table.label}.",
                hint="Publish the whole table; leave columns out with exclude_columns.",
            )

    def publish(self, tables: Sequence[SourceTable]) -> None:
        """Create the publication for exactly these tables, or add missing ones."""
        published = self.tables()
        missing = [table for table in tables if (table.schema, table.name) not in published]
        if not self.check():
            self._run("CREATE PUBLICATION {} FOR TABLE {} WITH (" + PUBLISHED + ")", missing)
        elif missing:
            self._run("ALTER PUBLICATION {} ADD TABLE {}", missing)

    def _run(self, statement: str, tables: Iterable[SourceTable]) -> None:
        import psycopg
        from psycopg import sql

        # ONLY excludes tables that inherit; partitions are included anyway
        names = sql.SQL(", ").join(sql.SQL("ONLY {}").format(sql.Identifier(t.schema, t.name)) for t in tables)
        try:
            self._session.execute(sql.SQL(statement).format(sql.Identifier(self.name), names))
        except psycopg.Error as error:
            raise explain(error, self._where, f"publish the tables through {self.name!r}") from error
