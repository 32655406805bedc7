"""Real Kafka and real Debezium: topics survive a crash, a connector delivers the rows of a table."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from local_services import kafka_jars
from local_services.connect import Connect, postgres_connector
from local_services.kafka import Kafka
from local_services.postgres import Postgres
from local_services.process import ServiceError

pytestmark = pytest.mark.services


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Kafka]:
    with Kafka(tmp_path / "kafka") as server:
        yield server


def read(kafka: Kafka, topic: str, count: int) -> list[Any]:
    """Return the first messages of a topic's partition 0, decoded."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "test", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    messages: list[Any] = []
    deadline = time.monotonic() + 60
    while len(messages) < count and time.monotonic() < deadline:
        messages += [
            json.loads(m.value() or b"null") for m in consumer.consume(count - len(messages), 0.5) if not m.error()
        ]
    consumer.close()
    return messages


@pytest.mark.soak
def test_topics_survive_a_crash_on_the_same_port(kafka: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("kept", b"1")
    assert producer.flush(30) == 0
    address = kafka.bootstrap_servers
    kafka.stop(crash=True)
    kafka.start()
    assert kafka.bootstrap_servers == address
    assert read(kafka, "kept", 1) == [1]


# tests/e2e/test_debezium.py needs the same servers
@pytest.mark.soak
def test_debezium_delivers_a_postgres_table(kafka: Kafka, folder: Path, tmp_path: Path) -> None:
    with Postgres(folder / "data") as postgres, Connect(tmp_path / "connect", kafka) as connect:
        with psycopg.connect(postgres.dsn, autocommit=True) as session:
            session.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
            session.execute("INSERT INTO t VALUES (1, 'a')")
            one_partition = {"topic.creation.default.partitions": "1"}
            connect.run_connector("pg", {**postgres_connector(postgres, "pg", "public.t"), **one_partition})
            session.execute("UPDATE t SET v = 'b'")
            events = read(kafka, "pg.public.t", 2)
        assert [(e["op"], e["after"]) for e in events] == [("r", {"id": 1, "v": "a"}), ("u", {"id": 1, "v": "b"})]
        classes = {plugin["class"].rpartition(".")[2] for plugin in connect.request("GET", "/connector-plugins")}
        assert {"PostgresConnector", "MySqlConnector", "MariaDbConnector"} <= classes
        with pytest.raises(ServiceError, match="400"):
            connect.run_connector("bad", {"connector.class": "io.debezium.connector.postgresql.PostgresConnector"})


def test_missing_jars_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_jars, "KAFKA", replace(kafka_jars.KAFKA, folder=tmp_path / "absent"))
    with pytest.raises(ServiceError, match="python -m local_services.install"):
        Kafka(tmp_path / "kafka").start()
