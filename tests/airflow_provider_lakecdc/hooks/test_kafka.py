"""Connections of type kafka become settings of the source, with their secrets separate."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import Connection

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.hooks.connections import SecretEnvironment
from airflow_provider_lakecdc.hooks.source import kafka_address
from lakecdc.contract.sources import parse_source
from lakecdc.contract.sources.kafka import KafkaSource


def described(**extra: Any) -> Connection:
    return Connection(conn_id="bus", conn_type="kafka", extra=json.dumps(extra))


def test_client_settings_are_passed_on_and_group_settings_are_not() -> None:
    secrets = SecretEnvironment("bus")
    connection = described(
        **{
            "bootstrap.servers": "a:9092,b:9092",
            "group.id": "team",
            "auto.offset.reset": "latest",
            "security.protocol": "SASL_SSL",
            "sasl.username": "u",
            "sasl.password": "pw",
            "ssl.key.pem": "-----BEGIN",
        }
    )
    address = kafka_address(connection, secrets)
    variables = {value: name for name, value in secrets.values.items()}
    assert address == {
        "bootstrap_servers": "a:9092,b:9092",
        "settings": {
            "security.protocol": "SASL_SSL",
            "sasl.username": "u",
            "sasl.password": {"env": variables["pw"]},
            "ssl.key.pem": {"env": variables["-----BEGIN"]},
        },
    }
    assert set(secrets.values.values()) == {"pw", "-----BEGIN"}
    source = parse_source({"type": "kafka", "topics": ["t"], "format": "json", **address}, ())
    assert isinstance(source, KafkaSource)


@pytest.mark.parametrize("extra", [{}, {"bootstrap.servers": "a:9092", "error_cb": {"a": 1}}])
def test_unusable_settings_are_refused(extra: dict[str, Any]) -> None:
    with pytest.raises(JobBadInputError, match="bus"):
        kafka_address(described(**extra), SecretEnvironment("bus"))
