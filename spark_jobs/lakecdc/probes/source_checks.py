"""Check a spec's source without Spark: ``python -m lakecdc.probes.source_checks < question.json``.

The question is that of :mod:`lakecdc.probes.preflight`, the output a JSON list of
:class:`lakecdc.contract.findings.Finding`. The checks are the functions that a job runs when it starts; nothing is
created, moved or locked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.fields import nearest
from lakecdc.contract.findings import Finding, merge_passed, run_check
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.probe_api import jdbc_table_name, start_findings
from lakecdc.probes import local_files
from lakecdc.probes.preflight import open_jdbc, read_question

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.metadata.positions import Position
    from lakecdc.probes.preflight import Session

_TABLES = "SELECT table_schema, table_name FROM information_schema.tables"
_TABLES_OF_SQLITE = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"


def main() -> int:
    """Check the source of the spec on standard input; return 0 for any result."""
    document, positions = read_question()
    results = list(findings(parse_spec(document), positions))
    print(json.dumps([finding.facts() for finding in results]))
    return 0


def findings(spec: JobSpec, positions: Mapping[str, Position] | None) -> Iterator[Finding]:
    """Check the source of an ingestion spec; ``positions`` are of tables that were fed, None if unknown."""
    source = spec.source
    if isinstance(source, FilesSource):
        for path in source.paths:
            yield run_check("source files", _path, path)
    elif isinstance(source, JdbcSource):
        yield from _jdbc_findings(spec, source)
    else:
        yield from start_findings(spec, positions)


def _path(path: str) -> str:
    local_files.check_path(path)
    return path if local_files.is_local(path) else f"{path}: only the job can look there"


def _jdbc_findings(spec: JobSpec, source: JdbcSource) -> Iterator[Finding]:
    """Check the database and each source table as far as possible without a driver."""
    opened: list[Session] = []
    yield run_check("source", _opened, source, opened)
    for each in opened:
        tables: list[str] = []
        with closing(each) as session:
            listed = run_check("source tables", _list_tables, session, source.dialect, tables)
        if listed.state != "ok":
            yield listed
            return
        results = [
            run_check(f"source of {one.table}", _check_table, one, source.dialect, tables) for one in spec.targets
        ]
        yield from merge_passed("source tables", results, "exist")


def _opened(source: JdbcSource, opened: list[Session]) -> str:
    session = open_jdbc(source)
    if session is None:
        return f"{source.url}: only the job can check it"
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


def _check_table(target: Target, dialect: str, tables: Sequence[str]) -> str:
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


if __name__ == "__main__":
    sys.exit(main())
