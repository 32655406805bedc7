"""Connections to the source, with the settings under which every value has one text form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from lakecdc.contract.errors import InputError, LakecdcError, SourceUnavailableError, is_refusal
from lakecdc.contract.secrets import resolve

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed

    from lakecdc.contract.sources.postgres import PostgresSource

Session: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

OLDEST = 130000
_SETTINGS = (
    "SET client_encoding = 'UTF8'",
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET IntervalStyle = 'iso_8601'",
    "SET bytea_output = 'hex'",
    "SET extra_float_digits = 3",
    # a policy would silently leave rows out of a full load; this makes it an error
    "SET row_security = off",
    # limits meant for web requests must not end a full load or a long transaction
    "SET statement_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
)
_CONNECT_SECONDS = 20
# detect a dead peer after a minute instead of the system's two hours
_KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


@dataclass(frozen=True)
class Address:
    """The source's address; its text never shows the connection string, which may contain a password."""

    conninfo: str = field(repr=False)

    @property
    def place(self) -> str:
        """``host:port`` for messages."""
        from psycopg.conninfo import conninfo_to_dict

        parts = conninfo_to_dict(self.conninfo)
        return f"{parts.get('host', 'the local socket')}:{parts.get('port', 5432)}"


def address(source: PostgresSource) -> Address:
    """Return the address in a spec, with its password resolved.

    :raises InputError: the connection string cannot be read.
    :raises SpecError: the password's reference cannot be resolved.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    password = resolve(source.password, "source.password")
    parts: dict[str, Any] = {"password": password} if password else {}
    try:
        given = conninfo_to_dict(source.dsn)
        defaults = {"connect_timeout": _CONNECT_SECONDS, "application_name": f"lakecdc {source.slot}", **_KEEPALIVE}
        parts |= {key: value for key, value in defaults.items() if key not in given}
        return Address(make_conninfo(source.dsn, **parts))
    except psycopg.ProgrammingError as error:
        raise InputError(
            "source.dsn is not a libpq connection string.",
            hint='Write "host=… port=5432 dbname=… user=…" or "postgresql://user@host:5432/dbname".',
        ) from error


def connect(where: Address, *, replication: bool = False) -> Session:
    """Open a session in which every value has one text form.

    :param replication: accept the replication protocol's commands too.
    :raises InputError: the server refuses the login, or has no such database.
    :raises SourceUnavailableError: the server cannot be reached.
    """
    import psycopg

    extra: dict[str, Any] = {"replication": "database"} if replication else {}
    try:
        session = psycopg.connect(where.conninfo, autocommit=True, **extra)
    except psycopg.OperationalError as error:
        kind = " for replication" if replication else ""
        text = _one_line(error)
        refused = is_refusal(text)
        raise (InputError if refused else SourceUnavailableError)(
            f"Postgres at {where.place} {'refuses the login' if refused else 'cannot be reached'}{kind}: {text}.",
            hint="Check host, port, database, user and password, pg_hba.conf, and that the server is running.",
        ) from error
    settings = [*_SETTINGS]
    if session.info.server_version >= 140000:
        settings.append("SET idle_session_timeout = 0")
    # one by one: a replication session accepts no lists of statements
    for setting in settings:
        session.execute(setting)
    return session


def one(session: Session, statement: str | Composed, *parameters: object) -> tuple[Any, ...]:
    """Return the first row of a statement that always has one."""
    row = session.execute(statement, parameters or None).fetchone()
    assert row is not None
    return tuple(row)


@contextmanager
def asking(where: Address) -> Iterator[None]:
    """Convert the server's errors to lakecdc's.

    :raises LakecdcError: the server refuses something.
    """
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise explain(error, where, "be read from") from error


def explain(error: psycopg.Error, where: Address, doing: str) -> LakecdcError:
    """Return our error for one of the server's.

    :param doing: the attempted action, such as ``create the publication "p"``.
    """
    import psycopg

    text = f"Postgres at {where.place} could not {doing}: {_one_line(error)}."
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        hint = (
            "The user needs REPLICATION and SELECT on the tables; to create the publication, CREATE on the database "
            "(GRANT CREATE ON DATABASE … TO …) and ownership of the tables; to add tables, ownership of the "
            "publication too."
        )
        return InputError(text, hint=hint)
    if isinstance(error, psycopg.errors.ConfigurationLimitExceeded):
        hint = "Raise max_replication_slots and max_wal_senders: each slot needs one, a full load temporarily one more."
        return InputError(text, hint=hint)
    return SourceUnavailableError(text)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
