"""Connections to the source, with the settings under which every value has one text form."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ssl import CERT_NONE, SSLContext, create_default_context
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from lakecdc.contract.errors import ConflictError, InputError, SourceUnavailableError
from lakecdc.contract.secrets import resolve

if TYPE_CHECKING:
    import pymysql

    from lakecdc.contract.sources.mysql import MysqlSource

Session: TypeAlias = "pymysql.Connection[Any]"

T = TypeVar("T")
_CONNECT_SECONDS = 20
# detect a dead peer after a minute instead of the system's two hours
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
# attempts to get a lock that another session holds, each as long as lock_wait_timeout
_LOCK_ATTEMPTS = 5
_LOCK_WAIT_TIMEOUT = 1205
_SETTINGS = {
    "time_zone": "'+00:00'",
    # no mode may refuse or change values: a zero date as a chunk's bound, padded blanks, ANSI quotes
    "sql_mode": "''",
    # limits meant for web requests must not end a full load
    "wait_timeout": "28800",
    "net_write_timeout": "3600",
    # the server's default is a year, and all others wait behind a reader that waits for a lock
    "lock_wait_timeout": "3",
}
# MySQL from 8.0.30 on may hide a generated primary key; MariaDB ignores comments of these versions
_MYSQL_ONLY = " /*!80030 , show_gipk_in_create_table_and_information_schema = ON */"
# all codes of access denied
_NO_RIGHT = {1044, 1045, 1142, 1143, 1227, 1370, 1698}
# further codes of a refused login: an unknown database, a host that may not connect
_REFUSED = _NO_RIGHT | {1049, 1130}


@dataclass(frozen=True)
class Address:
    """The source's address; its text never shows the password."""

    source: MysqlSource = field(repr=False)
    password: str = field(repr=False)

    @property
    def place(self) -> str:
        """``host:port`` for messages."""
        return f"{self.source.host}:{self.source.port}"

    def ssl_context(self) -> SSLContext | None:
        """Return the context of encrypted connections; None without encryption."""
        source = self.source
        if source.ssl == "disabled":
            return None
        context = create_default_context(cafile=source.ssl_ca)
        context.check_hostname = source.ssl == "verify_identity"
        if source.ssl == "required":
            context.verify_mode = CERT_NONE
        if source.ssl_cert:
            context.load_cert_chain(source.ssl_cert, source.ssl_key)
        return context


def address(source: MysqlSource) -> Address:
    """Return the address in a spec, with its password resolved.

    :raises SpecError: the password's reference cannot be resolved.
    """
    return Address(source, str(resolve(source.password, "source.password") or ""))


def connect(where: Address, *, texts: bool = False) -> Session:
    """Open a session in which every value has one text form.

    :param texts: return values as the server writes them, not as Python types.
    :raises InputError: the server refuses the login, or a file of ``source.ssl_…`` is missing.
    :raises SourceUnavailableError: the server cannot be reached.
    """
    import pymysql

    extra: dict[str, Any] = {"conv": {}} if texts else {}
    try:
        session = pymysql.connect(
            **extra,
            host=where.source.host,
            port=where.source.port,
            user=where.source.user,
            password=where.password,
            ssl=where.ssl_context(),
            ssl_disabled=where.source.ssl == "disabled",
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            init_command="SET " + ", ".join(f"{name} = {value}" for name, value in _SETTINGS.items()) + _MYSQL_ONLY,
        )
        try:
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):
                    session._sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)  # type: ignore[attr-defined]
        except OSError:
            session.close()
            raise
    except (pymysql.MySQLError, OSError, RuntimeError) as error:
        # a RuntimeError: the package for MySQL's passwords without encryption is missing
        refused = isinstance(error, FileNotFoundError) or bool(error.args and error.args[0] in _REFUSED)
        raise (InputError if refused else SourceUnavailableError)(
            f"The MySQL server at {where.place} {'refuses the login' if refused else 'cannot be reached'}: "
            f"{one_line(getattr(error, 'original_exception', error))}.",
            hint="Check host, port, user, password and source.ssl, and that the server is running.",
        ) from error
    return session


def query(session: Session, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Run a statement and fetch its rows; retry if it meets a lock."""

    def run() -> list[tuple[Any, ...]]:
        with session.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall())

    return patiently(run)


def patiently(run: Callable[[], T]) -> T:
    """Run a statement, and retry if it meets a lock; other sessions get their turn between the attempts.

    :param run: runs the statement; it must fail before any row is read.
    """
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

    attempts = Retrying(
        retry=retry_if_exception(_met_lock),
        stop=stop_after_attempt(_LOCK_ATTEMPTS),
        wait=wait_random_exponential(max=10),
        reraise=True,
    )
    return attempts(run)


def _met_lock(error: BaseException) -> bool:
    import pymysql

    return isinstance(error, pymysql.MySQLError) and error.args[:1] == (_LOCK_WAIT_TIMEOUT,)


@contextmanager
def asking(where: Address, doing: str) -> Iterator[None]:
    """Convert the server's errors to lakecdc's.

    :param doing: the attempted action, such as ``read the table``.
    """
    import pymysql

    try:
        yield
    except pymysql.MySQLError as error:
        text = f"The MySQL server at {where.place} could not {doing}: {one_line(error)}."
        if error.args and error.args[0] in _NO_RIGHT:
            hint = (
                "The user needs SELECT on the tables, REPLICATION SLAVE, and REPLICATION CLIENT "
                "(MariaDB: BINLOG MONITOR); full loads from MySQL need RELOAD too."
            )
            raise InputError(text, hint=hint) from error
        if _met_lock(error):
            hint = (
                "Another session holds a lock on a table: a backup, LOCK TABLES, ALTER TABLE or a long-running "
                "statement. Wait until it ends, or find it with SHOW PROCESSLIST."
            )
            raise ConflictError(text, hint=hint) from error
        raise SourceUnavailableError(text) from error


def variables(session: Session, *names: str) -> dict[str, str]:
    """Return the global variables that the server has, by name in lower case."""
    quoted = ", ".join(["%s"] * len(names))
    rows = query(session, f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({quoted})", names)
    return {name.lower(): str(value) for name, value in rows}


def quoted(*names: str) -> str:
    """Return quoted identifiers, joined by dots."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def one_line(error: Exception) -> str:
    """Return an error's text in one line, without its last full stop."""
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    return " ".join(text.split()).rstrip(".")
