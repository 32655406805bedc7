"""Settings of a Kafka source: what is refused, and the topics of each table."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.sources import kafka_java, parse_source
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.target import Target

PLAIN: dict[str, Any] = {"type": "kafka", "bootstrap_servers": "b:9092", "format": "debezium-json", "topics": ["t"]}
ORDERS = Target("shop.orders", ("id",))


def source(**rest: Any) -> KafkaSource:
    parsed = parse_source({**PLAIN, **rest}, (ORDERS,))
    assert isinstance(parsed, KafkaSource)
    return parsed


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ({"topics": []}, "either topics or topic_pattern"),
        ({"topic_pattern": "a.*"}, "either topics or topic_pattern"),
        ({"topics": [], "topic_pattern": "("}, "topic_pattern is wrong"),
        ({"routes": {"shop.orders": "["}}, "routes|shop.orders"),
        ({"routes": {"shop.other": "t"}}, "not a target"),
        ({"settings": {"group.id": "g"}}, "sets itself"),
        ({"settings": {"ssl.key.pem": "x"}}, "literal"),
        ({"java_settings": {"sasl.mechanism": "PLAIN"}}, "reader is librdkafka"),
        ({"reader": "spark", "java_settings": {"group.id": "g"}}, "sets itself"),
        ({"reader": "spark", "java_settings": {"key.deserializer": "d"}}, "sets itself"),
        ({"reader": "spark", "java_settings": {"sasl.jaas.config": "x"}}, "literal"),
        ({"reader": "spark", "settings": {"ssl.key.location": "/k"}}, "ssl.key.location.*java_settings"),
        ({"start": "yesterday"}, "source.start"),
        ({"start": "2026-01-01T00:00:00"}, "source.start"),
        ({"end_time": ""}, "data interval"),
        ({"end_time": "None"}, "data interval"),
        ({"max_offsets_per_batch": 0}, "not 1 or more"),
        ({"format": "xml"}, "format"),
    ],
)
def test_wrong_settings_are_named(rest: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        source(**rest)


def test_a_target_without_a_key_is_refused() -> None:
    with pytest.raises(SpecError, match="no key"):
        parse_source({**PLAIN, "format": "dms-json"}, (Target("shop.orders"),))


def test_formats_with_keys_need_no_configured_key() -> None:
    assert parse_source(PLAIN, (Target("shop.orders"),))
    assert parse_source({**PLAIN, "format": "canal-json"}, (Target("shop.orders"),))


def test_a_literal_password_is_refused() -> None:
    with pytest.raises(SpecError, match="literal"):
        parse_source({**PLAIN, "settings": {"sasl.password": "x"}}, ())


def test_topics_of_a_target() -> None:
    topics = ["pg.shop.orders", "pg.shop.reorders", "pg.crm.orders", "orders", "pg.transaction"]
    by_name = source(topics=[], topic_pattern=".*")
    assert by_name.topics_of(ORDERS, topics, single=True) == ["pg.shop.orders", "pg.crm.orders", "orders"]
    qualified = Target("lake.o", ("id",), source_table="shop.orders")
    assert by_name.topics_of(qualified, topics, single=False) == ["pg.shop.orders"]
    routed = source(topics=[], topic_pattern=".*", routes={"shop.orders": r"pg\.\w+\.orders"})
    assert routed.topics_of(ORDERS, topics, single=True) == ["pg.shop.orders", "pg.crm.orders"]
    assert source().topics_of(ORDERS, ["t"], single=True) == ["t"]
    assert source().topics_of(ORDERS, ["t"], single=False) == []


def test_patterns_match_whole_names() -> None:
    kafka = source(topics=[], topic_pattern="pg.shop")
    assert kafka.reads("pg.shop") and not kafka.reads("pg.shop.orders")


@pytest.mark.parametrize(
    ("settings", "java"),
    [
        (
            {"security.protocol": "sasl_ssl", "ssl.ca.location": "/ca.pem", "queued.max.messages.kbytes": 1},
            {
                "security.protocol": "SASL_SSL",
                "ssl.truststore.location": "/ca.pem",
                "ssl.truststore.type": "PEM",
            },
        ),
        (
            {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": 'a"b\\'},
            {
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
                'username="u" password="a\\"b\\\\";',
            },
        ),
        (
            {"sasl.kerberos.keytab": "/k", "sasl.kerberos.principal": "p@R", "fetch.wait.max.ms": 50},
            {
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required "
                'useKeyTab="true" storeKey="true" keyTab="/k" principal="p@R";',
                "fetch.max.wait.ms": "50",
            },
        ),
        (
            {"ssl.certificate.pem": "c", "ssl.key.pem": "k", "ssl.endpoint.identification.algorithm": "none"},
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": "c",
                "ssl.keystore.key": "k",
                "ssl.endpoint.identification.algorithm": "",
            },
        ),
        (
            {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": "p"},
            {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": "/k.p12",
                "ssl.keystore.password": "p",
            },
        ),
    ],
)
def test_settings_are_translated_to_java_names(settings: dict[str, Any], java: dict[str, str]) -> None:
    assert kafka_java.unknown(settings) == []
    assert kafka_java.translated(settings) == java


def test_java_settings_take_precedence() -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    assert kafka_java.translated(login, {"sasl.jaas.config": "mine", "allow.auto.create.topics": False}) == {
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "mine",
        "allow.auto.create.topics": "false",
    }
    assert "sasl.jaas.config" not in kafka_java.translated(login, {"sasl.mechanism": "OAUTHBEARER"})
