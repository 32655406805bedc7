"""What a run would refuse of a MySQL source, and whether its log has anything new, asked before Spark is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakecdc.ingest.sources.database import standing
from lakecdc.ingest.sources.mysql.connect import asking
from lakecdc.ingest.sources.mysql.server import read_server
from lakecdc.ingest.sources.mysql.start_checks import check_identity
from lakecdc.metadata.source_state import SourceState

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.ingest.sources.mysql.connect import Address, Session
    from lakecdc.metadata.positions import Position


def check(session: Session, where: Address, spec: JobSpec, positions: Mapping[str, Position] | None) -> SourceState:
    """Check what a run checks first, and compare the log's end with the positions.

    :param positions: of the targets that have been fed; None if they are not known.
    :raises LakecdcError: no table can be fed from the source.
    """
    with asking(where, "tell its settings"):
        server = read_server(session)
    for table, position in standing(spec, positions or {}).items():
        check_identity(table, position, server, where.place)
    return SourceState()
