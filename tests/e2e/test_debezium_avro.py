"""Postgres through Debezium, Kafka and a schema registry in Avro: the table equals the source, types included."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from local_services.connect import Connect
from local_services.kafka import Kafka
from local_services.postgres import Postgres
from local_services.registry_jars import CONVERTER
from local_services.schema_registry import SchemaRegistry, converter_settings
from tests.conftest import Lake

pytestmark = pytest.mark.services

COLUMNS = "id, name, price, free, born, seen, raw, doc"


class Goods:
    """A table, its connector and its copy."""

    def __init__(self, lake: Lake, postgres: Postgres, kafka: Kafka, registry: SchemaRegistry) -> None:
        self.lake, self.postgres, self.kafka = lake, postgres, kafka
        self.session = psycopg.connect(postgres.dsn, autocommit=True)
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
            "bootstrap_servers": kafka.bootstrap_servers,
            "format": "debezium-avro",
            "topics": ["pg.public.goods"],
            "registry": {"url": registry.uri, "path": "/ids/globalIds/{id}"},
        }
        # a scale cannot follow the source's
        target = {"table": self.name, "columns": {"price": "decimal(12,2)"}}
        self.spec: dict[str, Any] = lake.spec("ingest", source=source, target=target)

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
            "poll.interval.ms": "50",
            "schema.name.adjustment.mode": "avro",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "2",
        }

    def until(self, records: int) -> None:
        """Wait until the topic contains so many records."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        deadline = time.monotonic() + 120
        while self._count_messages(admin) < records:
            assert time.monotonic() < deadline, "the connector does not deliver"
            time.sleep(0.2)

    def _count_messages(self, admin: AdminClient) -> int:
        places = [TopicPartition("pg.public.goods", p) for p in range(2)]
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

    def assert_equal(self, columns: str = COLUMNS) -> None:
        """Compare row by row; DuckDB reads the table, where unbounded numbers are text."""
        source_columns = columns.replace("free", "trim_scale(free)::text")
        expected = self.session.execute(f"SELECT {source_columns} FROM goods ORDER BY id".encode()).fetchall()
        assert sorted(self.lake.duckdb_rows(self.name, columns)) == expected


@pytest.fixture
def goods(lake: Lake) -> Iterator[Goods]:
    """Start all servers and the connector."""
    folder = Path(tempfile.mkdtemp(prefix="lakecdc-avro-"))
    folder.chmod(0o755)
    try:
        with (
            Postgres(folder / "data") as postgres,
            Kafka(folder / "kafka") as kafka,
            SchemaRegistry(folder / "registry") as registry,
            Connect(folder / "connect", kafka, settings=converter_settings(registry), jars=[CONVERTER]) as connect,
        ):
            started = Goods(lake, postgres, kafka, registry)
            connect.run_connector("pg", started.connector)
            yield started
            started.session.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_the_table_equals_the_source(goods: Goods) -> None:
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
    goods.assert_equal(f"{COLUMNS}, note")
