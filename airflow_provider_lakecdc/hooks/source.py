"""An Airflow connection of type ``postgres`` as the source of an ingest job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.hooks.lookup import find_connection
from airflow_provider_lakecdc.hooks.secrets import SecretEnvironment, is_secret

if TYPE_CHECKING:
    from airflow.sdk import Connection

CONN_TYPE = "postgres"
_MISSING = (
    "that describes the source database",
    '{"conn_type": "postgres", "host": "db.example.com", "login": "lakecdc", "password": "…", "schema": "shop"}',
)
# extras of Airflow's Postgres connections that are not libpq's
_NOT_LIBPQ = {"cursor", "iam", "redshift", "aws_conn_id", "cluster-identifier", "region_name", "sqlalchemy_query"}


def source_from_connection(source: Mapping[str, Any], conn_id: str) -> tuple[dict[str, Any], SecretEnvironment]:
    """Complete a Postgres source with the address and login of an Airflow connection.

    :param source: the ``source`` of an ingest spec without ``dsn`` and ``password``.
    :param conn_id: connection of type ``postgres``; its extra may hold libpq's own parameters such as ``sslmode``.
    :return: the completed source and the secrets it refers to.
    :raises JobBadInputError: if both give the address, or the types do not fit.
    """
    connection = find_connection(conn_id, *_MISSING)
    kind = source.get("type", CONN_TYPE)
    if connection.conn_type != CONN_TYPE or kind != CONN_TYPE:
        raise JobBadInputError(
            f"A source of type {kind!r} cannot use the connection {conn_id!r} of type {connection.conn_type!r}.",
            hint=f"source_conn_id needs a source and a connection of type {CONN_TYPE!r}.",
        )
    if given := {"dsn", "password"} & set(source):
        raise JobBadInputError(
            f"The source has {' and '.join(sorted(given))}, and source_conn_id={conn_id!r} gives them as well.",
            hint="Leave one of the two out.",
        )
    secrets = SecretEnvironment(conn_id)
    completed = {**source, "type": kind, "dsn": conninfo(connection)}
    if connection.password:
        completed["password"] = secrets.refer("password", connection.password)
    secrets.hide_from_logs()
    return completed, secrets


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
