"""Check a job's source before Spark starts: ``python -m lakecdc.probes.preflight < question.json``.

Spark takes a quarter of a minute to find out that a password is wrong. The question is ``{"spec": …, "positions":
{table: text}}``, with positions of tables that were fed, as in snapshot summaries; ``null`` if unknown. The answer is a
:class:`lakecdc.metadata.source_state.SourceState`. Everything else is left to the job.
"""

from __future__ import annotations

import socket
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from lakecdc.contract.errors import InputError, LakecdcError, SourceUnavailableError, SpecError, is_refusal
from lakecdc.contract.secrets import mask, resolve
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.spec import Catalog, JobSpec, loads, parse_spec
from lakecdc.ingest.probe_api import check_start
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
    """Answer the question on standard input; return 0 for any state of the source."""
    document, positions = read_question()
    try:
        state = check(parse_spec(document), positions)
    except (InputError, SpecError, SourceUnavailableError) as error:
        state = SourceState(mask(str(error)), error.failure_class)
    except (ImportError, LakecdcError) as error:
        print(f"Cannot check the source from here: {mask(str(error))}", file=sys.stderr)
        state = SourceState()
    print(state.to_json())
    return 0


def read_question() -> tuple[Any, dict[str, Position] | None]:
    """Return the spec document and the positions from standard input; None for unknown positions."""
    question = loads(sys.stdin.read())
    texts = question["positions"]
    return question["spec"], None if texts is None else {table: decode(text) for table, text in texts.items()}


def check(spec: JobSpec, positions: Mapping[str, Position] | None) -> SourceState:
    """Check the catalog's folder and the source of a spec.

    :param positions: of tables that were fed; None if unknown.
    :raises InputError: a wrong password, an unknown database, a missing folder, slot or topic.
    :raises SourceUnavailableError: the source is unreachable.
    """
    _check_catalog(spec.catalog)
    source = spec.source
    if isinstance(source, FilesSource):
        return local_files.check(spec, source, positions)
    if isinstance(source, JdbcSource):
        check_jdbc(source)
        return SourceState()
    return check_start(spec, positions)


def _check_catalog(catalog: Catalog) -> None:
    uri = str(resolve(catalog.properties.get("uri", ""), "catalog.uri"))
    folder = Path(uri.removeprefix("sqlite:///")).parent
    if uri.startswith("sqlite:////") and not folder.is_dir():
        raise InputError(
            f"The folder {folder} of the catalog {catalog.name!r} does not exist.",
            hint="Create it, or correct the catalog's uri.",
        )


def check_jdbc(source: JdbcSource) -> None:
    """Check the database of a ``jdbc`` source; raise like :func:`open_jdbc`, also if nothing listens there."""
    try:
        session = open_jdbc(source)
    except SourceUnavailableError:
        # the job's JDBC driver may support servers that these clients do not
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
    """Open the database of a ``jdbc`` source; return None if that needs the JDBC driver.

    :raises InputError: it refuses the login, or its file does not exist.
    :raises SourceUnavailableError: it is unreachable.
    """
    parts = urlsplit(source.url.removeprefix("jdbc:"))
    if source.dialect == "sqlite":
        file = source.url.removeprefix("jdbc:sqlite:").partition("?")[0].removeprefix("file:")
        if file.startswith("/") and not Path(file).exists():
            raise InputError(f"The file {file} in source.url does not exist.", hint="Correct source.url.")
        return sqlite3.connect(f"file:{quote(file)}?mode=ro", uri=True) if file.startswith("/") else None
    # several hosts, or a service, need the driver
    if not parts.hostname or "," in parts.netloc:
        return None
    database = "dbname" if source.dialect == "postgresql" else "database"
    login = {"user": source.user, "password": resolve(source.password, "source.password")}
    login |= {"port": parts.port, database: parts.path.strip("/")}
    given: dict[str, Any] = {name: value for name, value in login.items() if value}
    if source.dialect == "postgresql":
        import psycopg

        try:
            return psycopg.connect(host=parts.hostname, connect_timeout=_SECONDS, **given)
        except psycopg.OperationalError as error:
            raise _refusal(source, error) from error
    import pymysql

    try:
        return pymysql.connect(host=parts.hostname, connect_timeout=_SECONDS, **given)
    except (pymysql.MySQLError, OSError, RuntimeError) as error:
        raise _refusal(source, error) from error


def _refusal(source: JdbcSource, error: Exception) -> LakecdcError:
    text = " ".join(str(error).split())
    return (InputError if is_refusal(text) else SourceUnavailableError)(
        f"Cannot query the database at {source.url}: {text}", hint="Check url, user and password."
    )


if __name__ == "__main__":
    sys.exit(main())
