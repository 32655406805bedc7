"""What can be told of a MySQL or MariaDB source before a run: server, settings of its log, login, tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from lakecdc.contract.findings import Finding, summed, tried
from lakecdc.ingest.discovery import check_patterns
from lakecdc.ingest.sources.database import standing
from lakecdc.ingest.sources.mysql import log as binlog
from lakecdc.ingest.sources.mysql.catalog import list_tables, read_table
from lakecdc.ingest.sources.mysql.connect import Address, address, asking, connect, query, quoted, variables
from lakecdc.ingest.sources.mysql.server import Server, log_end, read_server
from lakecdc.ingest.sources.mysql.start_checks import check_identity, check_place
from lakecdc.model.positions import BinlogPosition

if TYPE_CHECKING:
    from lakecdc.contract.sources.mysql import MysqlSource
    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.ingest.sources.mysql.connect import Session
    from lakecdc.metadata.positions import Position

_UNKNOWN = "Whether the log still has what they have not seen is not known: see what is said of the catalog."
# a full load from MySQL takes a read lock for a moment; FLUSH_TABLES is a part of RELOAD
_MAY_LOCK = ("RELOAD", "FLUSH_TABLES", "ALL PRIVILEGES ON *.*")


def findings(spec: JobSpec, source: MysqlSource, positions: Mapping[str, Position] | None) -> Iterator[Finding]:
    """Look at the source as a run does when it starts, and lock nothing.

    :param source: the spec's.
    :param positions: of tables that have been fed; None if they are not known.
    """
    where = address(source)
    opened: list[Session] = []
    servers: list[Server] = []
    yield tried("source", _opened, where, opened)
    if not opened:
        return
    with closing(opened[0]) as session:
        yield tried("binary log", _log, session, where, servers)
        for server in servers:
            yield tried("source login", _login, session, where, server)
            yield from _tables(session, spec, source, where, server, positions or {})
            if positions is None:
                yield Finding("positions", "warn", "the tables' positions cannot be read", _UNKNOWN)


def _opened(where: Address, opened: list[Session]) -> str:
    session = connect(where)
    opened.append(session)
    return f"{variables(session, 'version').get('version', 'a server')} at {where.place}"


def _log(session: Session, where: Address, servers: list[Server]) -> str:
    with asking(where, "tell its settings"):
        servers.append(read_server(session))
    return "it has whole rows of all changes"


def _login(session: Session, where: Address, server: Server) -> Finding | str:
    with asking(where, "tell where its log ends"):
        end, _ = log_end(session, server)
    with asking(where, "send its log"):
        binlog.file_created(where, end.file)
    grants = " ".join(str(row[0]).upper() for row in query(session, "SHOW GRANTS"))
    if server.mariadb or any(right in grants for right in _MAY_LOCK):
        return f"{where.login['user']} may read the log"
    return Finding(
        "source login",
        "warn",
        f"{where.login['user']} may read the log, but has no RELOAD by itself",
        "Full loads need it: GRANT RELOAD ON *.* TO the user, unless a role of it has it.",
    )


def _tables(
    session: Session,
    spec: JobSpec,
    source: MysqlSource,
    where: Address,
    server: Server,
    positions: Mapping[str, Position],
) -> Iterator[Finding]:
    known = (session, source, where, server)
    named: list[JobSpec] = []
    yield from check_patterns(spec, lambda: list_tables(session), named)
    for each in named:
        at = standing(each, positions)
        found = [tried(f"source of {t.table}", _table, *known, t, at.get(t.table)) for t in each.targets]
        yield from summed("source tables", found, "can be read")


def _table(
    session: Session, source: MysqlSource, where: Address, server: Server, target: Target, position: Position | None
) -> str:
    with asking(where, "read the table"):
        if position:
            check_identity(target.table, position, server, where.place)
            at = BinlogPosition.of(position.offsets)
            check_place(session, server, target.table, at, lambda file: binlog.file_created(where, file))
        table = read_table(session, target, source, server.mariadb)
        query(session, f"SELECT 1 FROM {quoted(table.schema, table.name)} LIMIT 0")
    return table.label
