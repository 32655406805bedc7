"""What can be told of a Postgres source before a run: server, login, slot and its owner, publication, tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.findings import Finding, summed, tried
from lakecdc.ingest.discovery import check_patterns
from lakecdc.ingest.sources.database import standing
from lakecdc.ingest.sources.postgres import owners, slots
from lakecdc.ingest.sources.postgres.catalog import list_tables, read_table
from lakecdc.ingest.sources.postgres.connect import Address, address, connect
from lakecdc.ingest.sources.postgres.owners import Owner
from lakecdc.ingest.sources.postgres.slots import Publication
from lakecdc.ingest.sources.postgres.start_checks import (
    check_position,
    check_publication,
    check_same_table,
    check_slot,
    check_still_there,
)

if TYPE_CHECKING:
    from lakecdc.contract.sources.postgres import PostgresSource
    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.ingest.sources.postgres.slots import Session
    from lakecdc.metadata.positions import Position

Positions = Mapping[str, "Position"] | None

_UNKNOWN = "If its tables have been fed before, it is gone: the positions of the tables cannot be read here."
# Amazon's servers give replication to the members of a role instead of by an attribute
_MAY_REPLICATE = """
SELECT rolsuper OR rolreplication OR EXISTS (
  SELECT FROM pg_roles other WHERE other.rolname = 'rds_replication' AND pg_has_role(me.oid, other.oid, 'member'))
FROM pg_roles me WHERE rolname = current_user
"""
_FREE_SLOTS = "SELECT current_setting('max_replication_slots')::int - count(*) FROM pg_replication_slots"
_MAY_CREATE = "SELECT has_database_privilege(current_database(), 'CREATE')"
_MAY_READ = "SELECT has_table_privilege(%s::oid, 'SELECT'), pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = %s"


def findings(spec: JobSpec, source: PostgresSource, positions: Positions) -> Iterator[Finding]:
    """Look at the source as a run does when it starts, and make nothing.

    :param source: the spec's.
    :param positions: of tables that have been fed; None if they are not known.
    """
    opened: list[Session] = []
    where = address(source)
    yield tried("source", _opened, where, opened)
    if not opened:
        return
    with closing(opened[0]) as session:
        yield tried("source login", _login, session)
        named: list[JobSpec] = []
        yield from check_patterns(spec, lambda: list_tables(session), named)
        spec = named[0] if named else spec
        known = None if positions is None else standing(spec, positions)
        yield tried("source slot", _slot, session, source, known)
        yield tried("slot's owner", _owner, session, spec, source)
        publication = Publication(session, where, source.publication_name)
        yield tried("publication", _publication, session, source, publication, known)
        yield from _tables(session, spec, source, publication, known or {}) if named else ()


def _opened(where: Address, opened: list[Session]) -> str:
    session = connect(where)
    opened.append(session)
    slots.check_server(session)
    version = session.info.server_version
    return f"Postgres {version // 10000}.{version % 10000} at {where.place}, wal_level is logical"


def _login(session: Session) -> str:
    (may,) = session.execute(_MAY_REPLICATE).fetchone() or (False,)
    user = session.info.user
    if not may:
        raise InputError(f"{user} may not replicate.", hint=f"Run ALTER ROLE {user} REPLICATION at the source.")
    return f"{user} may replicate"


def _slot(session: Session, source: PostgresSource, positions: Positions) -> Finding | str:
    slot = slots.find_slot(session, source.slot)
    check_slot(source, slot, fed=bool(positions))
    if slot is not None:
        slots.check_ours(session, slot)
        kept = f"{source.slot} keeps {slot.lag_bytes / 1024**2:,.0f} MB of log at the source"
        if slot.active_pid is None:
            return kept
        hint = "That is right while a run reads it. Only one reader can have a slot."
        return Finding("source slot", "warn", f"{kept}; the server process {slot.active_pid} uses it", hint)
    (free,) = session.execute(_FREE_SLOTS).fetchone() or (0,)
    if free < 1:
        raise InputError(
            f"There is no slot {source.slot}, and all that the source allows are taken.",
            hint="Raise max_replication_slots and max_wal_senders: each slot needs one, a full load one more.",
        )
    text = f"{source.slot} is not there, the first run makes it; {free} more are allowed"
    return Finding("source slot", "warn", text, _UNKNOWN) if positions is None else text


def _owner(session: Session, spec: JobSpec, source: PostgresSource) -> str:
    mine, known = Owner.of(spec.catalog, spec.targets), owners.read(session, source.publication_name)
    theirs = known.get(source.slot)
    owners.check(source.slot, source.publication_name, theirs, mine, lambda _: True)
    return f"{source.slot} feeds these tables" if theirs else f"nobody has fed tables from {source.slot} yet"


def _publication(
    session: Session, source: PostgresSource, publication: Publication, positions: Positions
) -> Finding | str:
    exists = publication.check()
    check_publication(publication.name, exists, fed=bool(positions))
    if exists:
        return f"{publication.name} has {len(publication.tables())} tables"
    if not source.create:
        raise InputError(
            f"The source has no publication {publication.name!r}, and source.create is false.",
            hint="Run postgres_slot.py create --spec …, or allow source.create.",
        )
    (may,) = session.execute(_MAY_CREATE).fetchone() or (False,)
    if not may:
        raise InputError(
            f"There is no publication {publication.name!r}, and {session.info.user} may not make it.",
            hint=f"Run GRANT CREATE ON DATABASE {session.info.dbname} TO {session.info.user} at the source.",
        )
    text = f"{publication.name} is not there, the first run makes it"
    return Finding("publication", "warn", text, _UNKNOWN) if positions is None else text


def _tables(
    session: Session,
    spec: JobSpec,
    source: PostgresSource,
    publication: Publication,
    positions: Mapping[str, Position],
) -> Iterator[Finding]:
    known = (session, source, publication, publication.tables())
    found = [
        tried(f"source of {target.table}", _table, *known, target, positions.get(target.table))
        for target in spec.targets
    ]
    yield from summed("source tables", found, "can be read")


def _table(
    session: Session,
    source: PostgresSource,
    publication: Publication,
    published: set[tuple[str, str]],
    target: Target,
    position: Position | None,
) -> str:
    if position:
        check_position(target.table, position, slots.identity(session), f"{session.info.host}:{session.info.port}")
    check_still_there(session, source.slot, target, position)
    table, user = read_table(session, target), session.info.user
    check_same_table(table, position)
    may_read, may_publish = session.execute(_MAY_READ, (table.oid, table.oid)).fetchone() or (False, False)
    if not may_read:
        raise InputError(
            f"{user} may not read {table.label}.", hint=f"Run GRANT SELECT ON {table.label} TO {user} at the source."
        )
    if (table.schema, table.name) not in published and not (source.create and may_publish):
        raise InputError(
            f"The publication {publication.name!r} lacks {table.label}, and {user} may not add it.",
            hint=f"Run ALTER PUBLICATION {publication.name} ADD TABLE {table.label} at the source, or make {user} the "
            "owner of both.",
        )
    publication.check_filters(table)
    return table.label
