"""Tables fed by Postgres through Debezium and Kafka, in JSON or Avro, equal the source, even if Connect is killed."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from local_services.connect import Connect, postgres_connector
from local_services.kafka import Kafka
from local_services.postgres import Postgres
from local_services.registry_jars import CONVERTER
from local_services.schema_registry import SchemaRegistry, converter_settings
from tests.conftest import Lake

pytestmark = pytest.mark.services

PARTITIONS = 3
COLUMNS = "id, name, notes"
GOODS = "avro.public.goods"
GOODS_COLUMNS = "id, name, price, free, born, seen, raw, doc"


@dataclass(frozen=True)
class Servers:
    """The servers of all tests."""

    postgres: Postgres
    kafka: Kafka
    registry: SchemaRegistry
    connect: Connect


class Shop:
    """Tables, a connector and their copies in the lake."""

    def __init__(self, lake: Lake, servers: Servers) -> None:
        self.lake, self.postgres, self.kafka, self.connect = lake, servers.postgres, servers.kafka, servers.connect
        self.session = psycopg.connect(self.postgres.dsn, autocommit=True)
        self.session.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, name text, notes text);"
            "ALTER TABLE orders ALTER notes SET STORAGE EXTERNAL;"
            "CREATE TABLE lines (o int, n int, qty int, PRIMARY KEY (o, n));"
            "INSERT INTO orders SELECT i, 'name ' || i, repeat(md5(i::text), 300) FROM generate_series(1, 40) i;"
            "INSERT INTO lines SELECT i, 1, i FROM generate_series(1, 20) i;"
            # the last change of every step, so that a test knows when everything has arrived
            "CREATE TABLE fence (id int PRIMARY KEY)"
        )
        self.steps = 0
        names = [lake.new_name("dbz"), lake.new_name("dbz")]
        self.orders, self.lines = names
        source = {
            "type": "kafka",
            "bootstrap_servers": self.kafka.bootstrap_servers,
            "format": "debezium-json",
            "topic_pattern": r"pg\.public\..*",
        }
        targets = [
            {"table": self.orders, "key": ["id"], "source_table": "public.orders"},
            {"table": self.lines, "key": ["o", "n"], "source_table": "public.lines"},
        ]
        self.spec: dict[str, Any] = lake.spec("ingest", source=source, target=targets)

    @property
    def connector(self) -> dict[str, str]:
        """The settings of the connector."""
        return {
            **postgres_connector(self.postgres, "pg", "public.orders,public.lines,public.fence"),
            "skipped.operations": "none",
            "provide.transaction.metadata": "true",
            "topic.creation.default.partitions": str(PARTITIONS),
        }

    def until_delivered(self) -> None:
        """Wait until the connector has delivered everything committed."""
        self.steps += 1
        self.session.execute("INSERT INTO fence VALUES (%s)", (self.steps,))
        deadline = time.monotonic() + 120
        while self.fences() < self.steps:
            assert time.monotonic() < deadline, "the connector delivers nothing"
            time.sleep(0.2)

    def fences(self) -> int:
        """Return the number of steps that have arrived."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        if "pg.public.fence" not in admin.list_topics(timeout=10).topics:
            return 0
        try:
            return len(set(self.records("pg.public.fence")))
        except KafkaException as error:
            # a topic created a moment ago
            if error.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION:
                return 0
            raise

    def records(self, topic: str) -> list[bytes]:
        """Return the keys of all records of a topic."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        ends = admin.list_offsets({p: OffsetSpec.latest() for p in places})
        count = sum(future.result(30).offset for future in ends.values())
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap_servers, "group.id": "test", "log_level": 0})
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
        keys: list[bytes] = []
        while len(keys) < count:
            keys += [m.key() or b"" for m in consumer.consume(count - len(keys), 1.0) if m.error() is None]
        consumer.close()
        return keys

    def ingest(self) -> list[TableReport]:
        """Run the job in this process."""
        report = run(parse_spec(self.spec), ingest)
        assert not report.error, report.error
        assert all(t.outcome in ("done", "nothing") for t in report.tables), report.tables
        return list(report.tables)

    def assert_equal(self) -> None:
        """Compare row by row; DuckDB reads the tables."""
        for table, source, columns in ((self.orders, "orders", COLUMNS), (self.lines, "lines", "o, n, qty")):
            expected = self.session.execute(f"SELECT {columns} FROM {source} ORDER BY 1, 2").fetchall()
            assert sorted(self.lake.duckdb_rows(table, columns)) == expected


class Goods:
    """A table with many types, its connector, which writes Avro, and its copy."""

    def __init__(self, lake: Lake, servers: Servers) -> None:
        self.lake, self.servers = lake, servers
        self.session = psycopg.connect(servers.postgres.dsn, autocommit=True)
        self.session.execute(
            "CREATE TABLE goods (id int PRIMARY KEY, name varchar(20), price numeric(12,2), free numeric, born date, "
            "seen timestamp, raw bytea, doc text);"
            "ALTER TABLE goods ALTER doc SET STORAGE EXTERNAL;"
            "INSERT INTO goods SELECT i, 'n' || i, i * -1.25, i / 8.0, date '1969-12-30' + i, "
            r"timestamp '2024-01-02 03:04:05.123456' + i * interval '1 day', '\xdead', repeat(md5(i::text), 300) "
            "FROM generate_series(1, 9) i"
        )
        self.name = lake.new_name("avro")
        source = {
            "type": "kafka",
            "bootstrap_servers": servers.kafka.bootstrap_servers,
            "format": "debezium-avro",
            "topics": [GOODS],
            "registry": {"url": servers.registry.uri, "path": "/ids/globalIds/{id}"},
        }
        # a scale cannot follow the source's
        target = {"table": self.name, "columns": {"price": "decimal(12,2)"}}
        self.spec: dict[str, Any] = lake.spec("ingest", source=source, target=target)

    @property
    def connector(self) -> dict[str, str]:
        """The settings of the connector."""
        return {
            **postgres_connector(self.servers.postgres, "avro", "public.goods"),
            **converter_settings(self.servers.registry),
            "schema.name.adjustment.mode": "avro",
            "topic.creation.default.partitions": "2",
        }

    def until(self, records: int) -> None:
        """Wait until the topic contains so many records."""
        admin = AdminClient({"bootstrap.servers": self.servers.kafka.bootstrap_servers})
        deadline = time.monotonic() + 120
        while self._count_messages(admin) < records:
            assert time.monotonic() < deadline, "the connector does not deliver"
            time.sleep(0.2)

    def _count_messages(self, admin: AdminClient) -> int:
        places = [TopicPartition(GOODS, p) for p in range(2)]
        try:
            ends = admin.list_offsets({p: OffsetSpec.latest() for p in places})
            return sum(future.result(30).offset for future in ends.values())
        except KafkaException:
            # the topic does not exist yet, or has no leader
            return 0

    def ingest(self) -> TableReport:
        """Run the job in this process."""
        report = run(parse_spec(self.spec), ingest)
        assert not report.error, report.error
        assert report.tables[0].outcome == "done", report.tables[0].reason
        return report.tables[0]

    def assert_equal(self, columns: str = GOODS_COLUMNS) -> None:
        """Compare row by row; DuckDB reads the table, where unbounded numbers are text."""
        source_columns = columns.replace("free", "trim_scale(free)::text")
        expected = self.session.execute(f"SELECT {source_columns} FROM goods ORDER BY id".encode()).fetchall()
        assert sorted(self.lake.duckdb_rows(self.name, columns)) == expected


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Start all servers."""
    folder = Path(tempfile.mkdtemp(prefix="lakecdc-dbz-"))
    folder.chmod(0o755)
    # only an orderly stop saves the connectors' positions: after a kill they repeat everything since then
    settings = {"offset.flush.interval.ms": "600000"}
    try:
        with (
            Postgres(folder / "data") as postgres,
            Kafka(folder / "kafka") as kafka,
            SchemaRegistry(folder / "registry") as registry,
            Connect(folder / "connect", kafka, settings=settings, jars=[CONVERTER]) as connect,
        ):
            yield Servers(postgres, kafka, registry, connect)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def shop(lake: Lake, servers: Servers) -> Iterator[Shop]:
    """Start the connector of the shop and wait for its snapshot."""
    started = Shop(lake, servers)
    servers.connect.run_connector("pg", started.connector)
    started.until_delivered()
    servers.connect.restart_connector("pg")
    yield started
    started.session.close()


@pytest.fixture
def goods(lake: Lake, servers: Servers) -> Iterator[Goods]:
    """Start the connector of the goods."""
    started = Goods(lake, servers)
    servers.connect.run_connector("avro", started.connector)
    yield started
    started.session.close()


def test_debezium_history_equals_the_source(shop: Shop) -> None:
    shop.until_delivered()
    shop.ingest()
    shop.assert_equal()
    shop.session.execute("UPDATE orders SET name = name || '!' WHERE id % 3 = 0")
    shop.session.execute("UPDATE orders SET id = id + 1000 WHERE id IN (5, 6)")
    shop.session.execute("DELETE FROM orders WHERE id IN (7, 8)")
    shop.session.execute("INSERT INTO orders VALUES (7, 'again', null), (2000, 'new', 'short')")
    with shop.session.transaction():
        shop.session.execute("UPDATE lines SET qty = qty + 1 WHERE o < 10")
        shop.session.execute("DELETE FROM lines WHERE o = 10")
    shop.until_delivered()
    shop.ingest()
    shop.assert_equal()


def test_duplicates_of_a_killed_connector_and_a_truncate_are_ingested(shop: Shop) -> None:
    for step in range(3):
        shop.session.execute("UPDATE orders SET name = name || %s WHERE id %% 2 = 0", (str(step),))
        shop.session.execute("UPDATE orders SET id = id + 3000 WHERE id = %s", (20 + step,))
    shop.until_delivered()
    before = len(shop.records("pg.public.orders"))
    shop.ingest()
    shop.connect.stop(crash=True)
    shop.session.execute("UPDATE orders SET name = 'after the crash' WHERE id % 5 = 0")
    shop.session.execute("TRUNCATE lines")
    shop.session.execute("INSERT INTO lines VALUES (1, 1, 100)")
    shop.connect.start()
    shop.connect.run_connector("pg", shop.connector)
    shop.until_delivered()
    assert len(shop.records("pg.public.orders")) > 2 * (before - 40), "no record was sent twice"
    shop.ingest()
    shop.assert_equal()


def test_a_table_of_messages_in_avro_equals_the_source(goods: Goods) -> None:
    goods.until(9)
    report = goods.ingest()
    assert report.metrics["order_by_partition"] == "yes", "keys in Avro name their columns"
    goods.assert_equal()
    # in one batch: a new column, another scale, unchanged large values, a key change, deletes with tombstones
    goods.session.execute("UPDATE goods SET name = 'two' WHERE id = 2")
    goods.session.execute("ALTER TABLE goods ADD note text, ALTER price TYPE numeric(12,4)")
    goods.session.execute("UPDATE goods SET note = 'x', price = price + 0.5 WHERE id IN (3, 4)")
    goods.session.execute("UPDATE goods SET id = 50 WHERE id = 5")
    goods.session.execute("DELETE FROM goods WHERE id IN (6, 7)")
    goods.session.execute("INSERT INTO goods (id, note) VALUES (60, 'new')")
    goods.until(9 + 1 + 2 + 3 + 4 + 1)
    report = goods.ingest()
    assert not report.metrics.get("quarantined")
    goods.assert_equal(f"{GOODS_COLUMNS}, note")
