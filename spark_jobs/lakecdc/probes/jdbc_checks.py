"""What can be told of a JDBC source without its driver: the login, and whether the source tables exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.fields import nearest
from lakecdc.contract.findings import Finding, summed, tried
from lakecdc.ingest.sources.jdbc.dialects import source_name
from lakecdc.probes.preflight import open_jdbc

if TYPE_CHECKING:
    from lakecdc.contract.sources.jdbc import JdbcSource
    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.probes.preflight import Session

_TABLES = "SELECT table_schema, table_name FROM information_schema.tables"
_TABLES_OF_SQLITE = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"


def findings(spec: JobSpec, source: JdbcSource) -> Iterator[Finding]:
    """Look at the database where that can be done without its driver, and at each source table.

    :param source: the spec's.
    """
    opened: list[Session] = []
    yield tried("source", _opened, source, opened)
    for each in opened:
        tables: list[str] = []
        with closing(each) as session:
            listed = tried("source tables", _list_tables, session, source.dialect, tables)
        if listed.state != "ok":
            yield listed
            return
        found = [tried(f"source of {each.table}", _table, each, source.dialect, tables) for each in spec.targets]
        yield from summed("source tables", found, "exist")


def _opened(source: JdbcSource, opened: list[Session]) -> str:
    session = open_jdbc(source)
    if session is None:
        return f"{source.url}, which only the job can look at"
    opened.append(session)
    return f"{source.url} takes the login" if source.dialect != "sqlite" else f"{source.url} is there"


def _list_tables(session: Session, dialect: str, tables: list[str]) -> str:
    try:
        with closing(session.cursor()) as cursor:
            cursor.execute(_TABLES_OF_SQLITE if dialect == "sqlite" else _TABLES)
            tables += [".".join(row) for row in cursor.fetchall()]
    except Exception as error:
        raise InputError(
            f"The source's tables cannot be listed: {error}", hint="Check that source.url leads to a database."
        ) from error
    return f"{len(tables)} tables"


def _table(target: Target, dialect: str, tables: Sequence[str]) -> str:
    name = ".".join(source_name(target, dialect))
    known = {*tables} if dialect == "postgresql" else {table.casefold() for table in tables}
    if (name if dialect == "postgresql" else name.casefold()) not in known:
        remedy = 'Set "source_table" of its target to "schema.table", in the case in which the database keeps it.'
        near = nearest(name, tables)
        raise InputError(
            f"The source has no table {name}, or the login may not see it.", hint=f"{near} {remedy}" if near else remedy
        )
    return name
