"""Checks of a job's spec before Spark starts: ``python -m lakecdc.probes.preflight < spec.json``.

Spark takes a quarter of a minute to find out that a password is wrong. Only problems that a retry cannot fix are
reported; whether a server is up is left to the job a moment later.
"""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from lakecdc.contract.errors import InputError, LakecdcError, SourceUnavailableError, SpecError
from lakecdc.contract.refusals import is_refusal
from lakecdc.contract.report import EXIT_BAD_INPUT, EXIT_DONE
from lakecdc.contract.secrets import mask, resolve
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.spec import Catalog, JobSpec, loads, parse_spec

if TYPE_CHECKING:
    import psycopg
    import pymysql

    Session = sqlite3.Connection | psycopg.Connection[tuple[Any, ...]] | pymysql.Connection[Any]

_SECONDS = 10
# with one of these set, a path without a scheme may be in another file system
_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")


def main() -> int:
    """Check the spec on standard input.

    :return: 4 if it is refused, with the reason on standard output, else 0.
    """
    try:
        check(parse_spec(loads(sys.stdin.read())))
    except (InputError, SpecError) as error:
        print(mask(str(error)))
        return EXIT_BAD_INPUT
    except (ImportError, LakecdcError):
        # not installed here, or temporarily unreachable
        return EXIT_DONE
    return EXIT_DONE


def check(spec: JobSpec) -> None:
    """Check the catalog and the source that a spec names.

    :raises InputError: a wrong password, an unknown database, a missing folder.
    """
    _check_catalog(spec.catalog)
    source = spec.source
    if isinstance(source, FilesSource):
        for path in source.paths:
            check_path(path)
    elif isinstance(source, PostgresSource):
        from lakecdc.ingest.sources.postgres import connect as postgres

        postgres.connect(postgres.address(source)).close()
    elif isinstance(source, MysqlSource):
        from lakecdc.ingest.sources.mysql import connect as mysql

        mysql.connect(mysql.address(source)).close()
    elif isinstance(source, JdbcSource):
        check_jdbc(source)


def _check_catalog(catalog: Catalog) -> None:
    uri = str(resolve(catalog.properties.get("uri", ""), "catalog.uri"))
    folder = Path(uri.removeprefix("sqlite:///")).parent
    if uri.startswith("sqlite:////") and not folder.is_dir():
        raise InputError(
            f"The folder {folder} of the catalog {catalog.name!r} does not exist.",
            hint="Create it, or correct the catalog's uri.",
        )


def is_local(path: str) -> bool:
    """Check whether a path of a ``files`` source is certainly in this machine's file system."""
    scheme = urlsplit(path).scheme
    return scheme == "file" or (not scheme and not any(name in os.environ for name in _HADOOP))


def check_path(path: str) -> None:
    """Refuse a path of a ``files`` source whose folder does not exist, as far as this machine can tell.

    :raises InputError: names what is missing.
    """
    if not is_local(path):
        return
    parts = urlsplit(path)
    local = unquote(parts.path) if parts.scheme else path
    # Hadoop's patterns differ from Python's: only the part before the first pattern is checked
    fixed = re.split(r"[*?\[{\\]", local, maxsplit=1)[0]
    checked = Path(fixed if fixed == local else fixed.rpartition("/")[0] or "/")
    if not checked.exists():
        what = "file or folder" if fixed == local else "folder"
        raise InputError(
            f"source.path is {path}, but the {what} {checked} does not exist.", hint="Correct source.path."
        )


def check_jdbc(source: JdbcSource) -> None:
    """Connect to the database of a ``jdbc`` source, see :func:`open_jdbc`."""
    if (session := open_jdbc(source)) is not None:
        session.close()


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
