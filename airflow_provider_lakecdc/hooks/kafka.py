"""Kafka sources from Airflow connections of type ``kafka``, whose extra holds librdkafka's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.hooks.secrets import SecretEnvironment
from lakecdc.contract.sources.kafka import OWN_SETTINGS

if TYPE_CHECKING:
    from airflow.sdk import Connection


def kafka_address(connection: Connection, secrets: SecretEnvironment) -> dict[str, Any]:
    """Return the fields of a ``kafka`` source that a connection provides.

    Airflow's Kafka provider keeps the client's settings in the extra; those of consumer groups are ignored.

    :param secrets: receives the secret values.
    :raises JobBadInputError: ``bootstrap.servers`` is missing, or a setting is not a scalar.
    """
    extra: Mapping[str, Any] = connection.extra_dejson
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
