"""Settings of a Kafka source: what is refused, and which topics feed which table."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.secrets import refuse_literals
from lakecdc.contract.sources import parse_source
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.target import Target

PLAIN: dict[str, Any] = {"type": "kafka", "bootstrap_servers": "b:9092", "format": "debezium-json", "topics": ["t"]}
ORDERS = Target("shop.orders", ("id",))


def source(**rest: Any) -> KafkaSource:
    found = parse_source({**PLAIN, **rest}, (ORDERS,))
    assert isinstance(found, KafkaSource)
    return found


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ({"topics": []}, "either topics or topic_pattern"),
        ({"topic_pattern": "a.*"}, "either topics or topic_pattern"),
        ({"topics": [], "topic_pattern": "("}, "topic_pattern is wrong"),
        ({"routes": {"shop.orders": "["}}, "routes|shop.orders"),
        ({"routes": {"shop.other": "t"}}, "no target"),
        ({"settings": {"group.id": "g"}}, "sets itself"),
        ({"settings": {"ssl.key.pem": "x"}}, "literal"),
        ({"start": "yesterday"}, "source.start"),
        ({"start": "2026-01-01T00:00:00"}, "source.start"),
        ({"end_time": ""}, "data interval"),
        ({"end_time": "None"}, "data interval"),
        ({"max_offsets_per_batch": 0}, "at least 1"),
        ({"format": "xml"}, "format"),
    ],
)
def test_wrong_settings_are_named(rest: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        source(**rest)


def test_a_target_without_a_key_is_refused() -> None:
    with pytest.raises(SpecError, match="No key"):
        parse_source({**PLAIN, "format": "canal-json"}, (Target("shop.orders"),))


def test_debezium_tells_the_key_itself() -> None:
    assert parse_source(PLAIN, (Target("shop.orders"),))


def test_a_literal_password_is_refused() -> None:
    with pytest.raises(SpecError, match="literal"):
        refuse_literals({**PLAIN, "settings": {"sasl.password": "x"}}, "source")


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
    found = source(topics=[], topic_pattern="pg.shop")
    assert found.wants("pg.shop") and not found.wants("pg.shop.orders")
