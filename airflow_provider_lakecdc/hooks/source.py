"""An Airflow connection of a database or of Kafka as the source of an ingest job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.hooks.kafka import kafka_address
from airflow_provider_lakecdc.hooks.lookup import afind_connection, find_connection
from airflow_provider_lakecdc.hooks.secrets import SecretEnvironment
from lakecdc.contract.secrets import is_secret

if TYPE_CHECKING:
    from airflow.sdk import Connection

# extras of Airflow's Postgres connections that are not libpq's
_NOT_LIBPQ = {"cursor", "iam", "redshift", "aws_conn_id", "cluster-identifier", "region_name", "sqlalchemy_query"}


# by type of the connection, which is that of the source: what such a connection looks like, and what it gives
_EXAMPLES = {
    "postgres": '{"conn_type": "postgres", "host": "db.example.com", "login": "lakecdc", "password": "…", '
    '"schema": "shop"}',
    "mysql": '{"conn_type": "mysql", "host": "db.example.com", "login": "lakecdc", "password": "…", "schema": "shop"}',
    "kafka": '{"conn_type": "kafka", "extra": {"bootstrap.servers": "broker.example.com:9092"}}',
    "jdbc": '{"conn_type": "postgres", "host": "db.example.com", "login": "lakecdc", "password": "…", '
    '"schema": "shop"}',
}
# types of connections that a type of source can use
_CONNECTIONS = {
    "postgres": ("postgres",),
    "mysql": ("mysql",),
    "kafka": ("kafka",),
    "jdbc": ("postgres", "mysql", "sqlite", "jdbc"),
}
_GIVEN = {
    "postgres": {"dsn", "password"},
    "mysql": {"host", "port", "user", "password", "database", "ssl", "ssl_ca", "ssl_cert", "ssl_key"},
    "kafka": {"bootstrap_servers", "settings"},
    "jdbc": {"url", "user", "password"},
}
# PyMySQL's and mysqlclient's names in the connection's extra
_SSL_MODES = {
    "disabled": "disabled",
    "preferred": "required",
    "required": "required",
    "verify_ca": "verify_ca",
    "verify_identity": "verify_identity",
}


def source_from_connection(source: Mapping[str, Any], conn_id: str) -> tuple[dict[str, Any], SecretEnvironment]:
    """Complete a source with the address and login of an Airflow connection.

    :param source: the ``source`` of an ingest spec without what the connection gives.
    :param conn_id: connection of type ``postgres``, whose extra may hold libpq's own parameters such as ``sslmode``;
        or of type ``mysql``, whose extra may hold ``ssl_mode`` and ``ssl`` with ``ca``, ``cert`` and ``key``; or of
        type ``kafka``, whose extra holds librdkafka's settings. A source of type ``jdbc`` takes those of databases,
        and of type ``jdbc``, whose host is the URL.
    :return: the completed source and the secrets it refers to.
    :raises JobBadInputError: if both give the address, or the types do not fit.
    """
    completed, secrets = _completed(source, find_connection(conn_id, *_wanted(source)), conn_id)
    secrets.hide_from_logs()
    return completed, secrets


async def asource_from_connection(source: Mapping[str, Any], conn_id: str) -> tuple[dict[str, Any], SecretEnvironment]:
    """The same for a trigger."""
    completed, secrets = _completed(source, await afind_connection(conn_id, *_wanted(source)), conn_id)
    await secrets.ahide_from_logs()
    return completed, secrets


def _wanted(source: Mapping[str, Any]) -> tuple[str, str]:
    """What the connection is for, and what such a one looks like."""
    return "that describes the source", _EXAMPLES.get(str(source.get("type", "postgres")), "")


def _completed(
    source: Mapping[str, Any], connection: Connection, conn_id: str
) -> tuple[dict[str, Any], SecretEnvironment]:
    kind = str(source.get("type", connection.conn_type))
    if connection.conn_type not in _CONNECTIONS.get(kind, ()):
        raise JobBadInputError(
            f"A source of type {kind!r} cannot use the connection {conn_id!r} of type {connection.conn_type!r}.",
            hint=_hint_to_type(kind),
        )
    if given := _GIVEN[kind] & set(source):
        raise JobBadInputError(
            f"The source has {' and '.join(sorted(given))}, and source_conn_id={conn_id!r} gives them as well.",
            hint="Leave one of the two out.",
        )
    secrets = SecretEnvironment(conn_id)
    completed = {**source, "type": kind, **_address(kind, connection, secrets)}
    if connection.password and "password" in _GIVEN[kind]:
        completed["password"] = secrets.refer("password", connection.password)
    return completed, secrets


def _hint_to_type(kind: str) -> str:
    if kind not in _CONNECTIONS:
        return f"Leave source_conn_id out; it is for sources of type {', '.join(sorted(_CONNECTIONS))}."
    if kind == "jdbc":
        return f"It takes a connection of type {' or '.join(_CONNECTIONS[kind])}."
    return (
        f"Give the connection the type {kind!r}. If Airflow's web page does not offer it, Airflow's provider of that "
        f"type is missing where the page is served: pip install 'airflow-provider-lakecdc[{kind}]'."
    )


def _address(kind: str, connection: Connection, secrets: SecretEnvironment) -> dict[str, Any]:
    if kind == "kafka":
        return kafka_address(connection, secrets)
    if kind == "jdbc":
        return jdbc_address(connection)
    return {"dsn": conninfo(connection)} if kind == "postgres" else mysql_address(connection)


def stand_in(kind: str) -> dict[str, str]:
    """What a source of a type lacks until its connection is known, for checking the rest of it.

    :param kind: the source's type.
    """
    if kind == "jdbc":
        return {"url": "jdbc:postgresql://from-the-connection"}
    required = {"postgres": ("dsn",), "mysql": ("host", "user"), "kafka": ("bootstrap_servers",)}
    return dict.fromkeys(required.get(kind, ()), "from the connection")


def jdbc_address(connection: Connection) -> dict[str, Any]:
    """What a ``jdbc`` source takes from a connection, without the password."""
    host, login = connection.host or "", {"user": connection.login} if connection.login else {}
    if connection.conn_type in ("jdbc", "sqlite"):
        return {"url": host if host.startswith("jdbc:") else f"jdbc:{connection.conn_type}:{host}", **login}
    product, port = {"postgres": ("postgresql", 5432), "mysql": ("mysql", 3306)}[str(connection.conn_type)]
    extra = connection.extra_dejson
    if connection.conn_type == "mysql":
        settings = {"sslMode": str(extra["ssl_mode"]).upper()} if "ssl_mode" in extra else {}
    else:
        settings = {name: str(extra[name]) for name in ("sslmode", "sslrootcert") if name in extra}
    query = f"?{urlencode(settings)}" if settings else ""
    place = f"{host or 'localhost'}:{connection.port or port}/{quote(connection.schema or '')}"
    return {"url": f"jdbc:{product}://{place}{query}", **login}


def mysql_address(connection: Connection) -> dict[str, Any]:
    """What a ``mysql`` source takes from a connection, without the password.

    :raises JobBadInputError: an ``ssl_mode`` that the source does not know.
    """
    extra = connection.extra_dejson
    files = extra.get("ssl") or {}
    # Airflow keeps a nested object of a connection's extra as text where it was typed into the form
    files = json.loads(files) if isinstance(files, str) else files
    given = str(extra.get("ssl_mode", "verify_ca" if files.get("ca") else "disabled"))
    mode = _SSL_MODES.get(given.lower())
    if mode is None:
        raise JobBadInputError(
            f"The connection {connection.conn_id!r} has the ssl_mode {given!r}.",
            hint=f"It must be one of {', '.join(_SSL_MODES)}.",
        )
    parts = {
        "host": connection.host or "localhost",
        "port": connection.port,
        "user": connection.login or "",
        "database": connection.schema,
        "ssl": mode,
        "ssl_ca": files.get("ca"),
        "ssl_cert": files.get("cert"),
        "ssl_key": files.get("key"),
    }
    return {key: value for key, value in parts.items() if value not in (None, "")}


def conninfo(connection: Connection) -> str:
    """A libpq connection string without the password, values quoted where they have to be.

    Format: PostgreSQL documentation, 34.1.1.1 "Keyword/Value Connection Strings".
    """
    parameters = {
        "host": connection.host,
        "port": connection.port,
        "dbname": connection.schema,
        "user": connection.login,
        **{key: value for key, value in connection.extra_dejson.items() if _is_parameter(key, value)},
    }
    return " ".join(f"{key}={_quoted(str(value))}" for key, value in parameters.items() if value not in (None, ""))


def _is_parameter(key: str, value: Any) -> bool:
    return key not in _NOT_LIBPQ and isinstance(value, str | int) and not is_secret(key, str(value))


def _quoted(value: str) -> str:
    if value and not any(character in " '\\" for character in value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
