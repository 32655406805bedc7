"""Tables fed by Postgres through Debezium and Kafka equal the source, even if Connect is killed in between."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
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
from local_services.connect import Connect
from local_services.kafka import Kafka
from local_services.postgres import Postgres
from tests.conftest import Lake

pytestmark = pytest.mark.services

PARTITIONS = 3
COLUMNS = "id, name, notes"


class Shop:
    """A Postgres, a connector and the copy of its tables in the lake."""

    def __init__(self, lake: Lake, postgres: Postgres, kafka: Kafka, connect: Connect) -> None:
        self.lake, self.postgres, self.kafka, self.connect = lake, postgres, kafka, connect
        self.session = psycopg.connect(postgres.dsn, autocommit=True)
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
            "bootstrap_servers": kafka.bootstrap_servers,
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
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.postgres.port),
            "database.user": "postgres",
            "database.password": "x",
            "database.dbname": "postgres",
            "topic.prefix": "pg",
            "plugin.name": "pgoutput",
            "slot.name": "dbz",
            "skipped.operations": "none",
            "provide.transaction.metadata": "true",
            "poll.interval.ms": "50",
            "topic.creation.default.replication.factor": "1",
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


@pytest.fixture(scope="module")
def shop(lake: Lake) -> Iterator[Shop]:
    """Start all servers and ingest the snapshot."""
    folder = Path(tempfile.mkdtemp(prefix="lakecdc-dbz-"))
    folder.chmod(0o755)
    try:
        with (
            Postgres(folder / "data") as postgres,
            Kafka(folder / "kafka") as kafka,
            # only an orderly stop saves the connector's position: after a kill it repeats everything since then
            Connect(folder / "connect", kafka, settings={"offset.flush.interval.ms": "600000"}) as connect,
        ):
            started = Shop(lake, postgres, kafka, connect)
            connect.run_connector("pg", started.connector)
            started.until_delivered()
            connect.restart_connector("pg")
            yield started
            started.session.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
