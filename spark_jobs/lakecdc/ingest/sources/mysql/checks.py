"""Check a MySQL source: what a run refuses when it starts, and what is known before Spark starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial

from lakecdc.contract.findings import Finding, merge_passed, run_check
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.ingest.discovery import check_patterns
from lakecdc.ingest.sources.database import check_identity, full_load_needed, positions_to_continue
from lakecdc.ingest.sources.mysql.catalog import list_tables, read_table
from lakecdc.ingest.sources.mysql.connect import Address, Session, address, asking, connect, query, quoted, variables
from lakecdc.ingest.sources.mysql.log import file_created
from lakecdc.ingest.sources.mysql.server import Server, gtid_at, log_end, read_server
from lakecdc.metadata.positions import Position
from lakecdc.metadata.source_state import SourceState, may_be_idle, state_unless_unknown
from lakecdc.model.positions import BinlogPosition

TYPE = "mysql"
_UNKNOWN = "It is unknown whether the log still has their unread part: see the finding on the catalog."
# a full load from MySQL takes a short read lock; FLUSH_TABLES is part of RELOAD
_MAY_LOCK = ("RELOAD", "FLUSH_TABLES", "ALL PRIVILEGES ON *.*")


def check_place(
    session: Session, server: Server, table: str, at: BinlogPosition, created: Callable[[str], int]
) -> None:
    """Refuse a position from which the log cannot be read."""
    place, gtid = at.place, at.gtid
    sizes = {str(row[0]): int(row[1]) for row in query(session, "SHOW BINARY LOGS")}
    if place.file not in sizes:
        what = f"The source no longer has the log file {place.file} (it was purged, or the log was reset)"
        raise full_load_needed(what, table)
    if place.pos > sizes[place.file]:
        what = f"The source's log file {place.file} ends before the table's position {place.pos}: it was restored"
        raise full_load_needed(what, table)
    if gtid and server.mariadb:
        there = gtid_at(session, server, place)
        same = set(gtid.split(",")) <= set(there.split(","))
    else:
        there = "another set of transactions"
        same = not gtid or query(session, "SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", (gtid,))[0][0]
    if not same:
        raise full_load_needed(f"At {place} the source's log has {there}, not {gtid}: it was reset or restored", table)
    if at.created and at.created != created(place.file):
        raise full_load_needed(f"The source has a new log file {place.file}: its log was reset", table)


def check(
    session: Session, where: Address, spec: JobSpec, source: MysqlSource, positions: Mapping[str, Position] | None
) -> SourceState:
    """Check what a run checks first, and compare the log's end with the positions.

    :param positions: of targets that have been fed; None if unknown.
    :raises LakecdcError: no table can be fed from the source.
    """
    with asking(where, "report its settings"):
        server = read_server(session)
    for table, position in positions_to_continue(spec, positions or {}).items():
        check_identity(table, position, TYPE, server.identity, where.place)
    if positions is None or not may_be_idle(spec, positions):
        return SourceState()
    return state_unless_unknown(_compare_log_end, session, where, server, spec, positions)


def _compare_log_end(
    session: Session, where: Address, server: Server, spec: JobSpec, positions: Mapping[str, Position]
) -> SourceState:
    """Check whether the log ends at every target's position; if it goes on, there may be changes."""
    end, clock = log_end(session, server)
    for target in spec.targets:
        at = BinlogPosition.of(positions[target.table].offsets)
        if at.load is not None or at.ahead or at.place != end:
            return SourceState()
        check_place(session, server, target.table, at, partial(file_created, where))
    return SourceState(idle={target.table: positions[target.table].idle_until(clock) for target in spec.targets})


def findings(spec: JobSpec, source: MysqlSource, positions: Mapping[str, Position] | None) -> Iterator[Finding]:
    """Check the source as a run does when it starts, without locking anything.

    :param positions: of tables that have been fed; None if unknown.
    """
    where = address(source)
    opened: list[Session] = []
    servers: list[Server] = []
    yield run_check("source", _opened, where, opened)
    if not opened:
        return
    with closing(opened[0]) as session:
        yield run_check("binary log", _log, session, where, servers)
        for server in servers:
            yield run_check("source login", _login, session, where, server)
            named: list[JobSpec] = []
            yield from check_patterns(spec, lambda: list_tables(session), named)
            common = (session, source, where, server)
            for each in named:
                fed = positions_to_continue(each, positions or {})
                of_tables = [
                    run_check(f"source of {t.table}", _table, *common, t, fed.get(t.table)) for t in each.targets
                ]
                yield from merge_passed("source tables", of_tables, "can be read")
            if positions is None:
                yield Finding("positions", "warn", "the tables' positions cannot be read", _UNKNOWN)


def _opened(where: Address, opened: list[Session]) -> str:
    session = connect(where)
    opened.append(session)
    return f"{variables(session, 'version').get('version', 'a server')} at {where.place}"


def _log(session: Session, where: Address, servers: list[Server]) -> str:
    with asking(where, "report its settings"):
        servers.append(read_server(session))
    return "it has complete rows of all changes"


def _login(session: Session, where: Address, server: Server) -> Finding | str:
    with asking(where, "report the end of its log"):
        end, _ = log_end(session, server)
    with asking(where, "send its log"):
        file_created(where, end.file)
    grants = " ".join(str(row[0]).upper() for row in query(session, "SHOW GRANTS"))
    if server.mariadb or any(right in grants for right in _MAY_LOCK):
        return f"{where.source.user} may read the log"
    return Finding(
        "source login",
        "warn",
        f"{where.source.user} may read the log, but has no RELOAD privilege of its own",
        "Full loads need it: run GRANT RELOAD ON *.* TO the user, unless one of its roles has it.",
    )


def _table(
    session: Session, source: MysqlSource, where: Address, server: Server, target: Target, position: Position | None
) -> str:
    with asking(where, "read the table"):
        if position:
            check_identity(target.table, position, TYPE, server.identity, where.place)
            at = BinlogPosition.of(position.offsets)
            check_place(session, server, target.table, at, partial(file_created, where))
        table = read_table(session, target, source, server.mariadb)
        query(session, f"SELECT 1 FROM {quoted(table.schema, table.name)} LIMIT 0")
    return table.label
