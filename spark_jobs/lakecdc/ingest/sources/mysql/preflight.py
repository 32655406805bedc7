"""What a run would refuse of a MySQL source, and whether its log has anything new, asked before Spark is started."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from lakecdc.ingest.sources.database import standing
from lakecdc.ingest.sources.mysql.connect import asking
from lakecdc.ingest.sources.mysql.log import file_created
from lakecdc.ingest.sources.mysql.server import log_end, read_server
from lakecdc.ingest.sources.mysql.start_checks import check_identity, check_place
from lakecdc.metadata.source_state import SourceState, may_be_idle, state_unless_unknown
from lakecdc.model.positions import BinlogPosition

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.ingest.sources.mysql.connect import Address, Session
    from lakecdc.ingest.sources.mysql.server import Server
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
    if positions is None or not may_be_idle(spec, positions):
        return SourceState()
    return state_unless_unknown(_compare_log_end, session, where, server, spec, positions)


def _compare_log_end(
    session: Session, where: Address, server: Server, spec: JobSpec, positions: Mapping[str, Position]
) -> SourceState:
    """Prove that the log ends where every target stands; a log that has moved on may have something for one."""
    end, clock = log_end(session, server)
    for target in spec.targets:
        at = BinlogPosition.of(positions[target.table].offsets)
        if at.load is not None or at.ahead or at.place != end:
            return SourceState()
        check_place(session, server, target.table, at, partial(file_created, where))
    return SourceState(idle={target.table: positions[target.table].idle_until(clock) for target in spec.targets})
