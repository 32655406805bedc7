"""Look at a job's source before Spark is started: ``python -m lakecdc.probes.preflight < question.json``.

Spark takes a quarter of a minute to find out that a password is wrong. The question is ``{"spec": …, "positions":
{table: text}}``, with the positions of tables that have been fed as snapshot summaries hold them; ``null`` if they are
not known. The answer is a :class:`lakecdc.metadata.source_state.SourceState`. What cannot be judged from here is left
to the job.
"""

from __future__ import annotations

import socket
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from lakecdc.contract.errors import InputError, LakecdcError, SourceUnavailableError, SpecError
from lakecdc.contract.refusals import is_refusal
from lakecdc.contract.secrets import mask, resolve
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.spec import RECONCILE, Catalog, JobSpec, loads, parse_spec
from lakecdc.metadata.positions import Position, decode
from lakecdc.metadata.source_state import SourceState
from lakecdc.probes import local_files

if TYPE_CHECKING:
    import psycopg
    import pymysql

    Session = sqlite3.Connection | psycopg.Connection[tuple[Any, ...]] | pymysql.Connection[Any]

_SECONDS = 10
_PORTS = {"postgresql": 5432, "mysql": 3306}


def main() -> int:
    """Answer the question on the standard input.

    :return: 0, whatever the state of the source is.
    """
    question = loads(sys.stdin.read())
    encoded = question["positions"]
    positions = None if encoded is None else {table: decode(text) for table, text in encoded.items()}
    try:
        state = check(parse_spec(question["spec"]), positions)
    except (InputError, SpecError, SourceUnavailableError) as error:
        state = SourceState(mask(str(error)), error.failure_class)
    except (ImportError, LakecdcError) as error:
        print(f"The source cannot be judged from here: {mask(str(error))}", file=sys.stderr)
        state = SourceState()
    print(state.to_json())
    return 0


def check(spec: JobSpec, positions: Mapping[str, Position] | None) -> SourceState:
    """Try what a spec names.

    :param positions: of the targets that have been fed; None if they are not known.
    :raises InputError: a wrong password, an unknown database, a missing folder, slot or topic.
    :raises SourceUnavailableError: the source is out of reach.
    """
    _check_catalog(spec.catalog)
    source = spec.source
    if isinstance(source, FilesSource):
        return local_files.check(spec, source, positions)
    if isinstance(source, JdbcSource):
        check_jdbc(source)
    elif isinstance(source, PostgresSource):
        return _check_postgres(spec, source, positions)
    elif isinstance(source, MysqlSource):
        return _check_mysql(spec, source, positions)
    elif isinstance(source, KafkaSource):
        from lakecdc.ingest.sources.kafka import preflight as kafka

        return kafka.check(spec, source, positions)
    return SourceState()


def _check_postgres(spec: JobSpec, source: PostgresSource, positions: Mapping[str, Position] | None) -> SourceState:
    from lakecdc.ingest.sources.postgres import connect as postgres

    where = postgres.address(source)
    with closing(postgres.connect(where)) as session:
        if spec.job == RECONCILE:
            return SourceState()
        # needs Spark's Python, which a login does not
        from lakecdc.ingest.sources.postgres import checks

        return checks.check(session, where, spec, source, positions)


def _check_mysql(spec: JobSpec, source: MysqlSource, positions: Mapping[str, Position] | None) -> SourceState:
    from lakecdc.ingest.sources.mysql import connect as mysql

    where = mysql.address(source)
    with closing(mysql.connect(where)) as session:
        if spec.job == RECONCILE:
            return SourceState()
        from lakecdc.ingest.sources.mysql import checks

        return checks.check(session, where, spec, positions)


def _check_catalog(catalog: Catalog) -> None:
    uri = str(resolve(catalog.properties.get("uri", ""), "catalog.uri"))
    folder = Path(uri.removeprefix("sqlite:///")).parent
    if uri.startswith("sqlite:////") and not folder.is_dir():
        raise InputError(
            f"The folder {folder} of the catalog {catalog.name!r} does not exist.",
            hint="Create it, or correct the catalog's uri.",
        )


def check_jdbc(source: JdbcSource) -> None:
    """Try the database of a ``jdbc`` source.

    :raises InputError: it refuses the login, or its file does not exist.
    :raises SourceUnavailableError: nothing listens at its address.
    """
    try:
        session = open_jdbc(source)
    except SourceUnavailableError:
        # the job's own driver may get on with a server that these clients do not get on with
        if _is_listening(source):
            return
        raise
    if session is not None:
        session.close()


def _is_listening(source: JdbcSource) -> bool:
    parts = urlsplit(source.url.removeprefix("jdbc:"))
    try:
        socket.create_connection((parts.hostname, parts.port or _PORTS[source.dialect]), _SECONDS).close()
    except OSError:
        return False
    return True


def open_jdbc(source: JdbcSource) -> Session | None:
    """Open the database of a ``jdbc`` source; return None where that needs its driver.

    :raises InputError: it refuses the login, or its file does not exist.
    :raises SourceUnavailableError: it is unreachable.
    """
    parts = urlsplit(source.url.removeprefix("jdbc:"))
    if source.dialect == "sqlite":
        file = source.url.removeprefix("jdbc:sqlite:").partition("?")[0].removeprefix("file:")
        if file.startswith("/") and not Path(file).exists():
            raise InputError(f"The file {file} in source.url does not exist.", hint="Correct source.url.")
        return sqlite3.connect(f"file:{quote(file)}?mode=ro", uri=True) if file.startswith("/") else None
    if source.dialect == "postgresql" and parts.hostname and "," not in parts.netloc:
        return _open_postgres(source, parts.hostname, parts.port, parts.path.strip("/"))
    if source.dialect == "mysql" and parts.hostname and "," not in parts.netloc:
        return _open_mysql(source, parts.hostname, parts.port, parts.path.strip("/"))
    return None


def _open_postgres(source: JdbcSource, host: str, port: int | None, database: str) -> Session:
    import psycopg

    login = {"user": source.user, "password": resolve(source.password, "source.password")}
    given = {key: value for key, value in {**login, "port": port, "dbname": database}.items() if value}
    try:
        return psycopg.connect(host=host, connect_timeout=_SECONDS, **given)
    except psycopg.OperationalError as error:
        raise _refusal(source, error) from error


def _open_mysql(source: JdbcSource, host: str, port: int | None, database: str) -> Session:
    import pymysql

    login = {"user": source.user, "password": resolve(source.password, "source.password")}
    given = {key: value for key, value in {**login, "port": port, "database": database}.items() if value}
    try:
        return pymysql.connect(host=host, connect_timeout=_SECONDS, **given)
    except (pymysql.MySQLError, OSError, RuntimeError) as error:
        raise _refusal(source, error) from error


def _refusal(source: JdbcSource, error: Exception) -> LakecdcError:
    text = " ".join(str(error).split())
    return (InputError if is_refusal(text) else SourceUnavailableError)(
        f"Cannot query the database at {source.url}: {text}", hint="Check url, user and password."
    )


if __name__ == "__main__":
    sys.exit(main())
