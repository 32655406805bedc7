"""The initial contents of the containers' sources and their configurations, on the same servers as local processes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition
from pymysql.constants import CLIENT

from airflow_provider_lakecdc.templates import load_config
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from local_services.connect import Connect
from local_services.kafka import Kafka
from local_services.mariadb import MariaDB
from local_services.postgres import Postgres
from tests.conftest import Lake
from tests.open_folder import open_folder

pytestmark = pytest.mark.services

DOCKER = Path(__file__).parents[2] / "docker"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as entered:
        yield entered


@pytest.fixture(scope="module")
def shop(folder: Path) -> Iterator[Postgres]:
    """Start the Postgres with the container's initial contents."""
    with Postgres(folder / "postgres") as server:
        with psycopg.connect(server.dsn, autocommit=True) as session:
            session.execute((DOCKER / "sources" / "shop.sql").read_text())
        yield server


def fed(lake: Lake, config: str, address: dict[str, Any]) -> dict[str, list[tuple[Any, ...]]]:
    """Feed the tables of a configuration; return their ids by source table."""
    given = load_config(str(DOCKER / "config" / f"{config}.json"))
    targets = [{**target, "table": lake.new_name(config)} for target in given.targets]
    spec = lake.spec("ingest", source={**given.source, **address}, target=targets)
    report = run(parse_spec(spec), ingest)
    assert [table.outcome for table in report.tables] == ["done"] * len(targets), report
    return {target["source_table"]: sorted(lake.duckdb_rows(target["table"], "id")) for target in targets}


def numbers(last: int) -> list[tuple[int]]:
    return [(number,) for number in range(1, last + 1)]


def wait_for(kafka: Kafka, topic: str, records: int) -> None:
    """Wait until a topic of one partition has so many records."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "test", "log_level": 0})
    deadline = time.monotonic() + 120
    while topic not in consumer.list_topics(timeout=10).topics or end_of(consumer, topic) < records:
        assert time.monotonic() < deadline, f"{topic} does not have {records} records"
        time.sleep(0.2)
    consumer.close()


def end_of(consumer: Consumer, topic: str) -> int:
    return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])


def test_the_postgres_of_the_containers_feeds_tables(lake: Lake, shop: Postgres) -> None:
    ids_by_table = fed(lake, "lakecdc", {"dsn": shop.dsn})
    assert ids_by_table == {"public.customers": numbers(100), "public.orders": numbers(1000)}


def test_the_mariadb_of_the_containers_feeds_tables(lake: Lake, folder: Path) -> None:
    with MariaDB(folder / "mariadb") as server:
        with server.connect(client_flag=CLIENT.MULTI_STATEMENTS) as session, session.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE crm; USE crm; {(DOCKER / 'sources' / 'crm.sql').read_text()}")
        ids_by_table = fed(lake, "crm", {"host": "127.0.0.1", "port": server.port, "user": "root"})
    assert ids_by_table == {"crm.contacts": numbers(100)}


def test_the_kafka_of_the_containers_feeds_tables(lake: Lake, shop: Postgres, folder: Path) -> None:
    settings = json.loads((DOCKER / "sources" / "connector.json").read_text())
    here = {"database.hostname": "127.0.0.1", "database.port": str(shop.port), "database.dbname": "postgres"}
    with Kafka(folder / "kafka") as kafka, Connect(folder / "connect", kafka) as connect:
        connect.run_connector("shop", {**settings, **here})
        topic = settings["topic.prefix"] + "." + settings["table.include.list"]
        wait_for(kafka, topic, 1000)
        ids_by_table = fed(lake, "events", {"bootstrap_servers": kafka.bootstrap_servers})
    assert ids_by_table == {"public.orders": numbers(1000)}
