"""Sources of ingest jobs from Airflow connections of databases or Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from airflow.sdk import Connection

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.hooks.connections import SecretEnvironment, find_connection
from lakecdc.contract.secrets import is_secret
from lakecdc.contract.sources.kafka import OWN_SETTINGS

# extras of Airflow's Postgres connections that libpq does not know
_NOT_LIBPQ = {"cursor", "iam", "redshift", "aws_conn_id", "cluster-identifier", "region_name", "sqlalchemy_query"}
_DATABASE = '{"conn_type": "%s", "host": "db.example.com", "login": "lakecdc", "password": "…", "schema": "shop"}'
# an example connection by type of source
_EXAMPLES = {
    "postgres": _DATABASE % "postgres",
    "mysql": _DATABASE % "mysql",
    "kafka": '{"conn_type": "kafka", "extra": {"bootstrap.servers": "broker.example.com:9092"}}',
    "jdbc": _DATABASE % "postgres",
}
# connection types by type of source
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
# ssl_mode of PyMySQL and mysqlclient in the connection's extra, by the source's mode
_SSL_MODES = {
    "disabled": "disabled",
    "preferred": "required",
    "required": "required",
    "verify_ca": "verify_ca",
    "verify_identity": "verify_identity",
}


def source_from_connection(source: Mapping[str, Any], conn_id: str) -> tuple[dict[str, Any], SecretEnvironment]:
    """Complete a source with the address and login of an Airflow connection.

    The connection is of type ``postgres``, with libpq parameters such as ``sslmode`` in its extra; ``mysql``, with
    ``ssl_mode`` and ``ssl`` (``ca``, ``cert``, ``key``) in its extra; or ``kafka``, with librdkafka settings in its
    extra. A source of type ``jdbc`` accepts connections of databases and of type ``jdbc``, whose host is the URL.

    :return: the completed source and the secrets it refers to.
    :raises JobBadInputError: both give the address, or the types do not match.
    """
    example = _EXAMPLES.get(str(source.get("type", "postgres")), "")
    connection = find_connection(conn_id, "for the source", example)
    kind = str(source.get("type", connection.conn_type))
    if connection.conn_type not in _CONNECTIONS.get(kind, ()):
        raise JobBadInputError(
            f"A source of type {kind!r} cannot use the connection {conn_id!r} of type {connection.conn_type!r}.",
            hint=_hint_to_type(kind),
        )
    if given := _GIVEN[kind] & set(source):
        raise JobBadInputError(
            f"Both the source and source_conn_id={conn_id!r} set {' and '.join(sorted(given))}.",
            hint="Remove one of the two.",
        )
    secrets = SecretEnvironment(conn_id)
    completed = {**source, "type": kind, **_address(kind, connection, secrets)}
    if connection.password and "password" in _GIVEN[kind]:
        completed["password"] = secrets.refer("password", connection.password)
    secrets.hide_from_logs()
    return completed, secrets


def _hint_to_type(kind: str) -> str:
    if kind not in _CONNECTIONS:
        return f"Remove source_conn_id; it is for sources of type {', '.join(sorted(_CONNECTIONS))}."
    if kind == "jdbc":
        return f"Use a connection of type {' or '.join(_CONNECTIONS[kind])}."
    return (
        f"Set the connection's type to {kind!r}. If the web page does not offer that type, install Airflow's provider "
        f"of it on the API server: pip install 'airflow-provider-lakecdc[{kind}]'."
    )


def _address(kind: str, connection: Connection, secrets: SecretEnvironment) -> dict[str, Any]:
    if kind == "kafka":
        return kafka_address(connection, secrets)
    if kind == "jdbc":
        return jdbc_address(connection)
    return {"dsn": conninfo(connection)} if kind == "postgres" else mysql_address(connection)


def placeholder_address(kind: str) -> dict[str, str]:
    """Return placeholders for the fields that a connection provides, to validate a source of a type without it."""
    if kind == "jdbc":
        return {"url": "jdbc:postgresql://from-the-connection"}
    required = {"postgres": ("dsn",), "mysql": ("host", "user"), "kafka": ("bootstrap_servers",)}
    return dict.fromkeys(required.get(kind, ()), "from the connection")


def jdbc_address(connection: Connection) -> dict[str, Any]:
    """Return the fields of a ``jdbc`` source that a connection provides, without the password."""
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
    """Return the fields of a ``mysql`` source that a connection provides, without the password.

    :raises JobBadInputError: the ``ssl_mode`` is unknown.
    """
    extra = connection.extra_dejson
    files = extra.get("ssl") or {}
    # Airflow stores nested objects as text if typed into the form
    files = json.loads(files) if isinstance(files, str) else files
    given = str(extra.get("ssl_mode", "verify_ca" if files.get("ca") else "disabled"))
    mode = _SSL_MODES.get(given.lower())
    if mode is None:
        raise JobBadInputError(
            f"The connection {connection.conn_id!r} has an unknown ssl_mode {given!r}.",
            hint=f"Use one of {', '.join(_SSL_MODES)}.",
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


def kafka_address(connection: Connection, secrets: SecretEnvironment) -> dict[str, Any]:
    """Return the fields of a ``kafka`` source that a connection provides.

    Airflow's Kafka provider keeps the client's settings in the extra; those of consumer groups are ignored.

    :raises JobBadInputError: ``bootstrap.servers`` is missing, or a setting is not a scalar.
    """
    extra = connection.extra_dejson
    servers = extra.get("bootstrap.servers")
    if not servers:
        raise JobBadInputError(
            f"The connection {connection.conn_id!r} has no bootstrap.servers in its extra.",
            hint='Add it, such as {"bootstrap.servers": "broker-1:9092,broker-2:9092"}.',
        )
    settings = {}
    for key, value in extra.items():
        if key in OWN_SETTINGS:
            continue
        if not isinstance(value, str | int | float):
            raise JobBadInputError(
                f"The setting {key!r} of the connection {connection.conn_id!r} is not a plain value."
            )
        settings[key] = secrets.refer_if_secret(key, value)
    return {"bootstrap_servers": str(servers), **({"settings": settings} if settings else {})}


def conninfo(connection: Connection) -> str:
    """Return a libpq connection string without the password.

    Format: PostgreSQL documentation, 34.1.1.1 "Keyword/Value Connection Strings".
    """
    parameters = {
        "host": connection.host,
        "port": connection.port,
        "dbname": connection.schema,
        "user": connection.login,
        **{
            key: value
            for key, value in connection.extra_dejson.items()
            if key not in _NOT_LIBPQ and isinstance(value, str | int) and not is_secret(key, str(value))
        },
    }
    return " ".join(f"{key}={_quoted(str(value))}" for key, value in parameters.items() if value not in (None, ""))


def _quoted(value: str) -> str:
    if value and not any(character in " '\\" for character in value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
