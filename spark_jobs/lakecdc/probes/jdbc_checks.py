"""Check a JDBC source without a driver: the login, and the existence of the source tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.fields import nearest
from lakecdc.contract.findings import Finding, summed, tried
from lakecdc.ingest.probe_api import jdbc_table_name
from lakecdc.probes.preflight import open_jdbc

if TYPE_CHECKING:
    from lakecdc.contract.sources.jdbc import JdbcSource
    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.probes.preflight import Session

_TABLES = "SELECT table_schema, table_name FROM information_schema.tables"
_TABLES_OF_SQLITE = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"


def findings(spec: JobSpec, source: JdbcSource) -> Iterator[Finding]:
    """Check the database and each source table as far as possible without a driver."""
    opened: list[Session] = []
    yield tried("source", _opened, source, opened)
    for each in opened:
        tables: list[str] = []
        with closing(each) as session:
            listed = tried("source tables", _list_tables, session, source.dialect, tables)
        if listed.state != "ok":
            yield listed
            return
        results = [tried(f"source of {each.table}", _table, each, source.dialect, tables) for each in spec.targets]
        yield from summed("source tables", results, "exist")


def _opened(source: JdbcSource, opened: list[Session]) -> str:
    session = open_jdbc(source)
    if session is None:
        return f"{source.url}, which only the job can check"
    opened.append(session)
    return f"{source.url} accepts the login" if source.dialect != "sqlite" else f"{source.url} exists"


def _list_tables(session: Session, dialect: str, tables: list[str]) -> str:
    try:
        with closing(session.cursor()) as cursor:
            cursor.execute(_TABLES_OF_SQLITE if dialect == "sqlite" else _TABLES)
            tables += [".".join(row) for row in cursor.fetchall()]
    except Exception as error:
        raise InputError(
            f"Cannot list the source's tables: {error}", hint="Check that source.url names a database."
        ) from error
    return f"{len(tables)} tables"


def _table(target: Target, dialect: str, tables: Sequence[str]) -> str:
    name = jdbc_table_name(target, dialect)
    known = {*tables} if dialect == "postgresql" else {table.casefold() for table in tables}
    if (name if dialect == "postgresql" else name.casefold()) not in known:
        remedy = 'Set "source_table" of its target to "schema.table", in the letter case that the database stores.'
        near = nearest(name, tables)
        raise InputError(
            f"The source has no table {name}, or the login lacks the privilege to see it.",
            hint=f"{near} {remedy}" if near else remedy,
        )
    return name
