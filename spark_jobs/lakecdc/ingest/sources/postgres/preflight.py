"""What a run would refuse of a Postgres source, and whether its log has anything new, asked before Spark is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakecdc.ingest.sources.database import standing
from lakecdc.ingest.sources.postgres import slots
from lakecdc.ingest.sources.postgres.connect import asking
from lakecdc.ingest.sources.postgres.slots import Publication
from lakecdc.ingest.sources.postgres.start_checks import check_position, check_publication, check_slot
from lakecdc.metadata.source_state import SourceState

if TYPE_CHECKING:
    from lakecdc.contract.sources.postgres import PostgresSource
    from lakecdc.contract.spec import JobSpec
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
    return SourceState()


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
