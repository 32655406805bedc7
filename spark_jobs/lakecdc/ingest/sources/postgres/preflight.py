"""What a run would refuse of a Postgres source, and whether its log has anything new, asked before Spark is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecdc.ingest.sources.database import standing
from lakecdc.ingest.sources.postgres import owners, slots
from lakecdc.ingest.sources.postgres.catalog import read_table
from lakecdc.ingest.sources.postgres.connect import asking
from lakecdc.ingest.sources.postgres.log import publication_list
from lakecdc.ingest.sources.postgres.owners import Owner
from lakecdc.ingest.sources.postgres.slots import End, Publication
from lakecdc.ingest.sources.postgres.start_checks import (
    check_position,
    check_publication,
    check_same_table,
    check_slot,
)
from lakecdc.ingest.sources.postgres.storage import is_unchanged
from lakecdc.metadata.source_state import SourceState, may_be_idle, state_unless_unknown
from lakecdc.model.positions import LsnPosition, lsn_text

# log that the source may keep for the slot before a run has to move it on
_KEPT_BYTES = 64 * 1024**2
_MESSAGES = 1000
# -1 for no limit; servers before Postgres 13 have none
_KEEP_SIZE = """
SELECT pg_size_bytes(nullif(current_setting('max_slot_wal_keep_size', true), '-1'))
"""
# a run that starts meanwhile waits for the lock no longer than that
_LIMIT = "SET statement_timeout = '1500ms'"
# transactions without a change of the published tables are a Begin and a Commit before Postgres 15, and nothing since
_PEEK = """
SELECT count(*), count(*) FILTER (WHERE get_byte(data, 0) NOT IN (ascii('B'), ascii('C')))
FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""

if TYPE_CHECKING:
    from lakecdc.contract.sources.postgres import PostgresSource
    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.ingest.sources.postgres.connect import Address
    from lakecdc.ingest.sources.postgres.slots import Session
    from lakecdc.metadata.positions import Position


def check(
    session: Session,
    where: Address,
    spec: JobSpec,
    source: PostgresSource,
    positions: Mapping[str, Position] | None,
) -> SourceState:
    """Check what a run checks first, and look for changes.

    :param source: the spec's.
    :param positions: of the targets that have been fed; None if they are not known.
    :raises LakecdcError: no table can be fed from the source.
    """
    known = None if positions is None else standing(spec, positions)
    with asking(where):
        _check_start(session, where, source, known)
    if known is None or not may_be_idle(spec, known):
        return SourceState()
    return state_unless_unknown(_look_for_changes, session, where, spec, source, known)


def _check_start(
    session: Session, where: Address, source: PostgresSource, positions: Mapping[str, Position] | None
) -> None:
    """Refuse a server, a slot or a publication that no run can go on from."""
    slots.check_server(session)
    slot, publication = slots.find_slot(session, source.slot), Publication(session, where, source.publication_name)
    if slot is not None:
        slots.check_ours(session, slot)
    if positions is None:
        return
    cluster = slots.identity(session)
    for table, position in positions.items():
        check_position(table, position, cluster, where.place)
    check_slot(source, slot, fed=bool(positions))
    check_publication(publication.name, publication.check(), fed=bool(positions))


def _look_for_changes(
    session: Session, where: Address, spec: JobSpec, source: PostgresSource, positions: Mapping[str, Position]
) -> SourceState:
    """Prove that the log has nothing for any target, as far as that takes no longer than a moment.

    The slot stays where it is: a run moves it on before it keeps much of the source's disk.
    """
    slots.lock(session, source.slot)
    session.execute(_LIMIT)
    slot, end = slots.find_slot(session, source.slot), slots.log_end(session)
    if slot is None or slot.active_pid is not None or slot.lost or slot.lag_bytes > _most_kept(session):
        return SourceState()
    publication = Publication(session, where, source.publication_name)
    owner = owners.read(session, publication.name).get(slot.name)
    owners.check(slot.name, publication.name, owner, Owner.of(spec.catalog, spec.targets), lambda _: True)
    published = publication.tables()
    for target in spec.targets:
        position = positions[target.table]
        if not slot.confirmed <= LsnPosition.of(position.offsets).lsn <= end.lsn:
            return SourceState()
        if not _is_as_before(session, publication, published, target, position):
            return SourceState()
    upto = lsn_text(end.lsn)
    found = session.execute(_PEEK, (slot.name, upto, _MESSAGES, publication_list(publication.name))).fetchone()
    # a peek that was cut has not seen the end
    if found is None or found[0] >= _MESSAGES or found[1]:
        return SourceState()
    idle = {table: _moved(position, end) for table, position in positions.items()}
    return SourceState(idle=idle, facts={"slot_lag_bytes": slot.lag_bytes})


def _most_kept(session: Session) -> int:
    """Return how many bytes of log the slot may keep without a run: far less than where the server drops it."""
    row = session.execute(_KEEP_SIZE).fetchone()
    limit = None if row is None else row[0]
    return _KEPT_BYTES if limit is None else min(_KEPT_BYTES, limit // 4)


def _moved(position: Position, end: End) -> Position:
    """Return the position of a table that has read the log to its end, where it found nothing."""
    at = replace(LsnPosition.of(position.offsets), lsn=end.lsn)
    return replace(position.idle_until(end.time), offsets=at.encode())


def _is_as_before(
    session: Session, publication: Publication, published: set[tuple[str, str]], target: Target, position: Position
) -> bool:
    """Tell whether a source table is loaded, published and unaltered.

    :raises InputError: its target cannot be fed.
    """
    if position.storage is None or {"load", "loaded"} & position.offsets.keys():
        return False
    table = read_table(session, target)
    check_same_table(table, position)
    publication.check_filters(table)
    return (table.schema, table.name) in published and is_unchanged(session, table, position.storage)
