"""Check a Postgres source: what a run refuses when it starts, and what is known before Spark starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace

from lakecdc.contract.errors import InputError
from lakecdc.contract.findings import Finding, merge_passed, run_check
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.ingest.discovery import check_patterns
from lakecdc.ingest.sources.database import check_identity, positions_to_continue
from lakecdc.ingest.sources.postgres import owners, slots
from lakecdc.ingest.sources.postgres.catalog import (
    SourceTable,
    find_table,
    list_tables,
    read_table,
    source_name,
    table_of,
)
from lakecdc.ingest.sources.postgres.connect import Address, Session, address, asking, connect, one
from lakecdc.ingest.sources.postgres.log import publication_list
from lakecdc.ingest.sources.postgres.owners import Owner
from lakecdc.ingest.sources.postgres.slots import Publication, Slot
from lakecdc.ingest.sources.postgres.storage import is_unchanged
from lakecdc.metadata.positions import Position
from lakecdc.metadata.source_state import SourceState, may_be_idle, state_unless_unknown
from lakecdc.model.positions import LsnPosition, lsn, lsn_text

Positions = Mapping[str, "Position"] | None
TYPE = "postgres"

_MESSAGES = 1000
# bytes of log that the source may keep before a run must advance the slot: far less than the server's limit
_MOST_KEPT = (
    "SELECT least(64 * 1024 * 1024, pg_size_bytes(nullif(current_setting('max_slot_wal_keep_size'), '-1')) / 4)"
)
# a run that starts meanwhile waits for the lock at most this long
_LIMIT = "SET statement_timeout = '1500ms'"
# before Postgres 15, transactions without changes of the published tables are a Begin and a Commit
_PEEK = """
SELECT count(*), count(*) FILTER (WHERE get_byte(data, 0) NOT IN (ascii('B'), ascii('C')))
FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""
_UNKNOWN = "If its tables were fed before, the slot was dropped: the positions of the tables cannot be read here."
# Amazon's servers grant replication by a role instead of an attribute
_MAY_REPLICATE = """
SELECT rolsuper OR rolreplication OR EXISTS (
  SELECT FROM pg_roles other WHERE other.rolname = 'rds_replication' AND pg_has_role(me.oid, other.oid, 'member'))
FROM pg_roles me WHERE rolname = current_user
"""
_FREE_SLOTS = "SELECT current_setting('max_replication_slots')::int - count(*) FROM pg_replication_slots"
_MAY_CREATE = "SELECT has_database_privilege(current_database(), 'CREATE')"
_MAY_READ = "SELECT has_table_privilege(%s::oid, 'SELECT'), pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = %s"


def check_still_there(session: Session, slot: str, target: Target, position: Position | None) -> None:
    """Refuse a target whose source table was dropped or renamed since it was fed; the error shows the slot's log."""
    if position is None or find_table(session, target) is not None:
        return
    label, oid = ".".join(source_name(target)), position.offsets.get("oid")
    name = table_of(session, oid) if oid else None
    state = slots.find_slot(session, slot)
    size = f", {state.lag_bytes / 1024**2:,.0f} MB by now" if state else ""
    retention = f"The slot {slot!r} keeps the log from {position.offsets['lsn']} on for its target{size}."
    if name:
        raise InputError(
            f"The source table {label} was renamed to {name}. {retention}",
            table=target.table,
            hint=f'Set "source_table" of its target to "{name}", or rename it back.',
        )
    raise InputError(
        f"The source table {label} was dropped. {retention}",
        table=target.table,
        hint="Remove the target from the configuration to let the slot advance; the target's rows stay. If the table "
        f'was recreated under another name, set "source_table" and run once with "reload": ["{target.table}"] in '
        "options.",
    )


def check_same_table(table: SourceTable, position: Position | None) -> None:
    """Refuse a source table that was dropped and recreated since its target was fed."""
    if position and position.offsets.get("oid", table.oid) != table.oid:
        raise table.full_load_needed(f"The source table {table.label} was dropped and recreated")


def check_slot(source: PostgresSource, slot: Slot | None, fed: bool) -> None:
    """Refuse a slot that a run cannot continue from; ``fed``: a table has a position."""
    name = source.slot
    if slot is None and fed:
        raise InputError(
            f"The source no longer has the slot {name!r}, nor the log that the tables have not read.",
            hint='Run once with "reload": ["*"] in options to reload the tables with a new slot.',
        )
    if slot is None and not source.create:
        raise InputError(
            f"The source has no slot {name!r}, and source.create is false.",
            hint="Run postgres_slot.py create --spec …, or allow source.create.",
        )
    if slot is not None and slot.lost:
        raise InputError(
            f"The source has removed log that the slot {name!r} needed (max_slot_wal_keep_size).",
            hint="Run SELECT pg_drop_replication_slot('…') at the source, then once with "
            '"reload": ["*"] in options to reload the tables with a new slot.',
        )


def check_publication(name: str, exists: bool, fed: bool) -> None:
    """Refuse to continue without the publication; ``fed``: a table has a position."""
    if fed and not exists:
        raise InputError(
            f"The source no longer has the publication {name!r}; changes made meanwhile may be lost.",
            hint='Run once with "reload": ["*"] in options to reload the tables with a new publication.',
        )


def check(
    session: Session,
    where: Address,
    spec: JobSpec,
    source: PostgresSource,
    positions: Positions,
) -> SourceState:
    """Check what a run checks first, and look for changes.

    :param positions: of targets that have been fed; None if unknown.
    :raises LakecdcError: no table can be fed from the source.
    """
    known = None if positions is None else positions_to_continue(spec, positions)
    with asking(where):
        _check_start(session, where, source, known)
    if known is None or not may_be_idle(spec, known):
        return SourceState()
    return state_unless_unknown(_look_for_changes, session, where, spec, source, known)


def _check_start(session: Session, where: Address, source: PostgresSource, positions: Positions) -> None:
    slots.check_server(session)
    slot, publication = slots.find_slot(session, source.slot), Publication(session, where, source.publication_name)
    if slot is not None:
        slots.check_ours(session, slot)
    if positions is None:
        return
    cluster = slots.identity(session)
    for table, position in positions.items():
        check_identity(table, position, TYPE, cluster, where.place)
    check_slot(source, slot, fed=bool(positions))
    check_publication(publication.name, publication.check(), fed=bool(positions))


def _look_for_changes(
    session: Session, where: Address, spec: JobSpec, source: PostgresSource, positions: Mapping[str, Position]
) -> SourceState:
    """Check whether the log has no changes for any target, if that takes only a moment.

    The slot does not advance: a run advances it before it uses much of the source's disk.
    """
    slots.lock(session, source.slot)
    session.execute(_LIMIT)
    slot, (end, clock) = slots.find_slot(session, source.slot), slots.log_end(session)
    if slot is None or slot.active_pid is not None or slot.lost or slot.lag_bytes > one(session, _MOST_KEPT)[0]:
        return SourceState()
    publication = Publication(session, where, source.publication_name)
    owner = owners.read(session, publication.name).get(slot.name)
    owners.check(slot.name, publication.name, owner, Owner.of(spec.catalog, spec.targets), lambda _: True)
    published = publication.tables()
    for target in spec.targets:
        position = positions[target.table]
        if not slot.confirmed <= LsnPosition.of(position.offsets).lsn <= end:
            return SourceState()
        if not _is_as_before(session, publication, published, target, position):
            return SourceState()
    messages, changes = one(session, _PEEK, slot.name, lsn_text(end), _MESSAGES, publication_list(publication.name))
    # a peek with a limit may not have reached the end
    if messages >= _MESSAGES or changes:
        return SourceState()
    idle = {
        table: replace(position.idle_until(clock), offsets=replace(LsnPosition.of(position.offsets), lsn=end).encode())
        for table, position in positions.items()
    }
    return SourceState(idle=idle, facts={"slot_lag_bytes": slot.lag_bytes})


def _is_as_before(
    session: Session, publication: Publication, published: set[tuple[str, str]], target: Target, position: Position
) -> bool:
    """Check whether a source table is loaded, published and unaltered."""
    if position.storage is None or {"load", "loaded"} & position.offsets.keys():
        return False
    table = read_table(session, target)
    check_same_table(table, position)
    publication.check_filters(table)
    return (table.schema, table.name) in published and is_unchanged(session, table, position.storage)


def findings(spec: JobSpec, source: PostgresSource, positions: Positions) -> Iterator[Finding]:
    """Check the source as a run does when it starts, without changing anything.

    :param positions: of tables that have been fed; None if unknown.
    """
    opened: list[Session] = []
    where = address(source)
    yield run_check("source", _opened, where, opened)
    if not opened:
        return
    with closing(opened[0]) as session:
        yield run_check("source login", _login, session)
        named: list[JobSpec] = []
        yield from check_patterns(spec, lambda: list_tables(session), named)
        spec = named[0] if named else spec
        known = None if positions is None else positions_to_continue(spec, positions)
        yield run_check("source slot", _slot, session, source, known)
        yield run_check("slot's owner", _owner, session, spec, source)
        publication = Publication(session, where, source.publication_name)
        yield run_check("publication", _publication, session, source, publication, known)
        if named:
            fed, common = known or {}, (session, source, publication, publication.tables())
            of_tables = [run_check(f"source of {t.table}", _table, *common, t, fed.get(t.table)) for t in spec.targets]
            yield from merge_passed("source tables", of_tables, "can be read")


def _opened(where: Address, opened: list[Session]) -> str:
    session = connect(where)
    opened.append(session)
    slots.check_server(session)
    version = session.info.server_version
    return f"Postgres {version // 10000}.{version % 10000} at {where.place}, wal_level is logical"


def _login(session: Session) -> str:
    (may,) = one(session, _MAY_REPLICATE)
    user = session.info.user
    if not may:
        raise InputError(f"{user} may not replicate.", hint=f"Run ALTER ROLE {user} REPLICATION at the source.")
    return f"{user} may replicate"


def _slot(session: Session, source: PostgresSource, positions: Positions) -> Finding | str:
    slot = slots.find_slot(session, source.slot)
    check_slot(source, slot, fed=bool(positions))
    if slot is not None:
        slots.check_ours(session, slot)
        retention = f"{source.slot} keeps {slot.lag_bytes / 1024**2:,.0f} MB of log at the source"
        if slot.active_pid is None:
            return retention
        hint = "That is expected while a run reads it. Only one reader can use a slot."
        return Finding("source slot", "warn", f"{retention}; the server process {slot.active_pid} uses it", hint)
    (free,) = one(session, _FREE_SLOTS)
    if free < 1:
        raise InputError(
            f"Slot {source.slot} does not exist, and all slots that the source allows are in use.",
            hint="Raise max_replication_slots and max_wal_senders: each slot needs one, a full load one more.",
        )
    text = f"{source.slot} does not exist, the first run creates it; {free} more are allowed"
    return Finding("source slot", "warn", text, _UNKNOWN) if positions is None else text


def _owner(session: Session, spec: JobSpec, source: PostgresSource) -> str:
    mine, known = Owner.of(spec.catalog, spec.targets), owners.read(session, source.publication_name)
    theirs = known.get(source.slot)
    owners.check(source.slot, source.publication_name, theirs, mine, lambda _: True)
    return f"{source.slot} feeds these tables" if theirs else f"no tables have been fed from {source.slot} yet"


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
    (may,) = one(session, _MAY_CREATE)
    if not may:
        raise InputError(
            f"Publication {publication.name!r} does not exist, and {session.info.user} may not create it.",
            hint=f"Run GRANT CREATE ON DATABASE {session.info.dbname} TO {session.info.user} at the source.",
        )
    text = f"{publication.name} does not exist, the first run creates it"
    return Finding("publication", "warn", text, _UNKNOWN) if positions is None else text


def _table(
    session: Session,
    source: PostgresSource,
    publication: Publication,
    published: set[tuple[str, str]],
    target: Target,
    position: Position | None,
) -> str:
    if position:
        place = f"{session.info.host}:{session.info.port}"
        check_identity(target.table, position, TYPE, slots.identity(session), place)
    check_still_there(session, source.slot, target, position)
    table, user = read_table(session, target), session.info.user
    check_same_table(table, position)
    may_read, may_publish = one(session, _MAY_READ, table.oid, table.oid)
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


def lag(source: PostgresSource, positions: Mapping[str, Position]) -> dict[str, int]:
    """Return how many bytes the log is ahead of each table's position; see ``probe_api.measure_lag``."""
    server = address(source)
    with connect(server) as session:
        cluster = slots.identity(session)
        for table, position in positions.items():
            check_identity(table, position, source.type, cluster, server.place)
        (end,) = one(session, "SELECT pg_current_wal_flush_lsn()")
    # on an idle source a table's position may be past the flushed end
    return {table: max(0, lsn(end) - LsnPosition.of(position.offsets).lsn) for table, position in positions.items()}
