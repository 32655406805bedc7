"""The ingest operator checks its source before it starts Spark, which an unreachable or idle source does not need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from airflow_provider_lakecdc.exceptions import JobBadInputError, JobClusterError
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.tables import read_positions, record_idle_position
from airflow_provider_lakecdc.operators.ingest import IngestOperator
from airflow_provider_lakecdc.sensors.watermark import IcebergWatermarkSensor
from airflow_provider_lakecdc.submit import launcher
from airflow_provider_lakecdc.submit.submission import check_spec, spec_document
from lakecdc.contract.target import Target
from lakecdc.ingest.sources.file_memory import fingerprint
from lakecdc.ingest.sources.kafka.librdkafka import LibrdkafkaCluster
from lakecdc.ingest.sources.postgres import administration
from lakecdc.ingest.sources.postgres.catalog import read_table
from lakecdc.ingest.sources.postgres.slots import advance, identity, lock, log_end
from lakecdc.ingest.sources.postgres.storage import StorageWatch
from lakecdc.metadata import names
from lakecdc.metadata.positions import Position
from lakecdc.model.positions import lsn, lsn_text
from local_services.kafka import Kafka
from local_services.mariadb import MariaDB
from local_services.postgres import Postgres
from local_services.process import free_port
from tests.airflow_provider_lakecdc.conftest import DATABASE_SECRET, FakeSpark, connection
from tests.airflow_provider_lakecdc.tables import ROW, FedTable, position
from tests.open_folder import open_folder

FIVE = "2026-01-01T05:00:00+00:00"
TARGETS = [{"table": "shop.orders", "key": ["id"]}]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Yield a folder that any account may enter, unlike ``tmp_path``."""
    with open_folder() as entered:
        yield entered


@pytest.fixture(scope="module")
def postgres(folder: Path) -> Iterator[Postgres]:
    """Start a server with a source table and a login that needs a password."""
    with Postgres(folder / "postgres") as started:
        with psycopg.connect(started.dsn, autocommit=True) as session:
            session.execute("CREATE SCHEMA shop")
            session.execute("CREATE TABLE shop.orders (id bigint PRIMARY KEY)")
            session.execute(f"CREATE ROLE reader LOGIN PASSWORD '{DATABASE_SECRET}'")
        rules = started.data_dir / "pg_hba.conf"
        rules.write_text(f"host all reader all scram-sha-256\n{rules.read_text()}")
        with psycopg.connect(started.dsn, autocommit=True) as session:
            session.execute("SELECT pg_reload_conf()")
        yield started


@pytest.fixture(scope="module")
def kafka(folder: Path) -> Iterator[Kafka]:
    """Start a Kafka node."""
    with Kafka(folder / "kafka") as started:
        yield started


@pytest.fixture
def orders(lake: dict[str, str]) -> FedTable:
    """Make the target, which was never fed."""
    return FedTable(lake)


def feed(table: FedTable, position: Position) -> None:
    """Commit a row with a position."""
    table.table.refresh()
    table.table.append(ROW, snapshot_properties={names.POSITIONS: position.encode()})


@pytest.fixture
def fed(orders: FedTable, postgres: Postgres) -> Iterator[dict[str, Any]]:
    """Yield the operator's source arguments; the target is at the end of the source's log."""
    source = {"type": "postgres", "slot": "lakecdc", "dsn": postgres.dsn}
    catalog = get_catalog("lake")
    spec = check_spec(spec_document("ingest", catalog, (), {}, source=source, target=TARGETS), "ingest")
    with launcher.environment(catalog.secrets.values):
        administration.create(spec)
    take_in_log(orders, postgres)
    yield {"source": source}
    administration.drop(spec)


def take_in_log(table: FedTable, postgres: Postgres) -> None:
    """Feed the table with everything in the log, and let the source release it."""
    with psycopg.connect(postgres.dsn, autocommit=True) as session:
        table_at_source, (end, _) = read_table(session, Target("shop.orders", ("id",))), log_end(session)
        offsets = {"lsn": lsn_text(end), "epoch": 1, "oid": table_at_source.oid}
        storage = StorageWatch(session, table_at_source, None).encode()
        position = Position("postgres", identity(session), offsets, FIVE, storage=storage)
        feed(table, position)
        advance(session, "lakecdc", end)


def execute(postgres: Postgres, *statements: str) -> None:
    """Run statements at the source, each in a transaction."""
    with psycopg.connect(postgres.dsn, autocommit=True) as session:
        for statement in statements:
            session.execute(statement)


def position_of_orders() -> Position | None:
    return read_positions(get_catalog("lake"), {"shop.orders": ""}).get("shop.orders")


def has_watermark(moment: datetime | str) -> bool:
    """Check whether the sensor of the target's watermark passes."""
    sensor = IcebergWatermarkSensor(task_id="w", table="shop.orders", moment=str(moment), catalog_conn_id="lake")
    return bool(sensor.poke({}).is_done)


def ingest(**arguments: Any) -> IngestOperator:
    return IngestOperator(**{"task_id": "t", "catalog_conn_id": "lake", "targets": TARGETS, **arguments})


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("postgres", {"type": "postgres", "slot": "s"}),
        ("mysql", {"type": "mysql"}),
        pytest.param(
            *("kafka", {"type": "kafka", "format": "debezium-json", "topics": ["orders"]}), marks=pytest.mark.services
        ),
        ("postgres", {"type": "jdbc", "cursor_column": "changed", "interval": None}),
    ],
    ids=["postgres", "mysql", "kafka", "jdbc"],
)
@pytest.mark.usefixtures("orders", "separate_probes")
def test_an_unreachable_source_fails_the_task_before_spark_is_started(
    spark_submit: FakeSpark, context: Any, monkeypatch: pytest.MonkeyPatch, kind: str, source: dict[str, Any]
) -> None:
    port = free_port()
    fields = {"host": "127.0.0.1", "port": port, "login": "reader", "password": DATABASE_SECRET, "schema": "shop"}
    if kind == "kafka":
        # otherwise the client gives up after half a minute
        monkeypatch.setattr(launcher, "_SOURCE_SECONDS", 120)
        fields = {"extra": {"bootstrap.servers": f"127.0.0.1:{port}"}}
    connection(monkeypatch, "shop", conn_type=kind, **fields)
    with pytest.raises(JobClusterError, match=rf"127\.0\.0\.1:{port}(.|\n)*Spark was not started") as down:
        ingest(source=source, source_conn_id="shop").execute(context)
    assert spark_submit.calls == []
    assert DATABASE_SECRET not in str(down.value)


@pytest.mark.usefixtures("separate_probes")
def test_a_refused_login_does_not_reveal_the_password(
    spark_submit: FakeSpark, context: Any, orders: FedTable, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"host": "127.0.0.1", "port": postgres.port, "login": "reader", "schema": "postgres"}
    connection(monkeypatch, "shop", conn_type="postgres", password="wr0ng-word", **fields)
    with pytest.raises(JobBadInputError, match="password authentication failed") as refused:
        ingest(source={"type": "postgres", "slot": "s"}, source_conn_id="shop").execute(context)
    assert "wr0ng-word" not in str(refused.value) and spark_submit.calls == []


def test_a_missing_slot_fails_the_task_before_spark_is_started(
    spark_submit: FakeSpark, context: Any, orders: FedTable, postgres: Postgres
) -> None:
    source = {"type": "postgres", "slot": "gone", "dsn": postgres.dsn}
    # the first run creates it
    ingest(source=source).execute(context)
    assert len(spark_submit.calls) == 1
    with psycopg.connect(postgres.dsn) as session:
        feed(orders, Position("postgres", identity(session), {"lsn": "0/1000"}))
    with pytest.raises(JobBadInputError, match="no longer has the slot 'gone'"):
        ingest(source=source).execute(context)
    with pytest.raises(JobBadInputError, match="create is false"):
        ingest(source={**source, "create": False}, reload=["*"]).execute(context)
    # a full load recreates it
    ingest(source=source, reload=["*"]).execute(context)
    assert len(spark_submit.calls) == 2


@pytest.mark.services
def test_a_missing_topic_fails_the_task_before_spark_is_started(
    spark_submit: FakeSpark, context: Any, orders: FedTable, kafka: Kafka
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result()
    source = {"type": "kafka", "format": "debezium-json", "bootstrap_servers": kafka.bootstrap_servers}
    with pytest.raises(JobBadInputError, match="The topics shop.orders do not exist"):
        ingest(source={**source, "topics": ["shop.orders"]}).execute(context)
    feed(orders, Position("kafka", "topic-ids", {"epoch": 1, "topics": {"orders": {"id": "", "next": [7]}}}))
    with pytest.raises(JobBadInputError, match="ends before the offset 7"):
        ingest(source={**source, "topics": ["orders"]}).execute(context)
    assert spark_submit.calls == []
    # another target can be fed
    items = {"table": "shop.items", "key": ["id"]}
    routes = {"shop.orders": "orders", "shop.items": "orders"}
    ingest(source={**source, "topics": ["orders"], "routes": routes}, targets=[*TARGETS, items]).execute(context)
    assert len(spark_submit.calls) == 1


def test_a_missing_folder_fails_the_task_before_spark_is_started(
    spark_submit: FakeSpark, context: Any, orders: FedTable, tmp_path: Path
) -> None:
    source = {"type": "files", "path": f"{tmp_path}/gone/*.jsonl", "format": "debezium-json"}
    with pytest.raises(JobBadInputError, match=f"folder {tmp_path}/gone does not exist"):
        ingest(source=source).execute(context)
    assert spark_submit.calls == []


@pytest.mark.usefixtures("separate_probes")
def test_an_idle_postgres_starts_no_spark_and_the_watermark_advances(
    spark_submit: FakeSpark, context: Any, fed: dict[str, Any], postgres: Postgres
) -> None:
    began = datetime.now(UTC)
    before = position_of_orders()
    assert has_watermark(FIVE) and not has_watermark(began)
    # the log grows by other tables
    execute(postgres, "CREATE TABLE others (id int)", "INSERT INTO others SELECT generate_series(1, 9)", "CHECKPOINT")
    promised = [{**TARGETS[0], "freshness": "30m"}]
    facts = ingest(**fed, targets=promised).execute(context)["shop.orders"]
    assert spark_submit.calls == [] and has_watermark(began)
    assert (facts["outcome"], facts["reason"]) == ("nothing", "the source has no changes for it")
    # readers see the source as of now, although nothing was written
    assert facts["metrics"]["freshness_late_seconds"] == 0.0
    after = position_of_orders()
    assert before and after and after.storage == before.storage
    assert lsn(after.offsets["lsn"]) >= lsn(before.offsets["lsn"])
    assert {**after.offsets, "lsn": None} == {**before.offsets, "lsn": None}
    execute(postgres, "DROP TABLE others")


def test_changes_in_the_log_start_spark(
    spark_submit: FakeSpark, context: Any, fed: dict[str, Any], postgres: Postgres
) -> None:
    execute(postgres, "INSERT INTO shop.orders VALUES (1)")
    ingest(**fed).execute(context)
    assert len(spark_submit.calls) == 1 and not has_watermark("2026-01-01T06:00:00")
    execute(postgres, "TRUNCATE shop.orders")


@pytest.mark.parametrize(
    "arguments",
    [{"look_first": False}, {"dry_run": True}, {"reload": ["*"]}],
    ids=lambda arguments: next(iter(arguments)),
)
def test_a_run_with_other_work_starts_spark(
    spark_submit: FakeSpark, context: Any, fed: dict[str, Any], arguments: dict[str, Any]
) -> None:
    ingest(**fed, **arguments).execute(context)
    assert len(spark_submit.calls) == 1 and not has_watermark("2026-01-01T06:00:00")


def test_an_altered_source_table_starts_spark(
    spark_submit: FakeSpark, context: Any, fed: dict[str, Any], orders: FedTable, postgres: Postgres
) -> None:
    execute(postgres, "ALTER TABLE shop.orders ADD COLUMN note text DEFAULT 'none'")
    ingest(**fed).execute(context)
    assert len(spark_submit.calls) == 1
    take_in_log(orders, postgres)
    ingest(**fed).execute(context)
    assert len(spark_submit.calls) == 1
    execute(postgres, "ALTER TABLE shop.orders DROP COLUMN note")


def test_a_table_that_is_loading_or_has_parked_log_starts_spark(
    spark_submit: FakeSpark, context: Any, fed: dict[str, Any], orders: FedTable, lake: dict[str, str]
) -> None:
    standing = position_of_orders()
    assert standing is not None
    for key in ("load", "loaded"):
        feed(orders, replace(standing, offsets={**standing.offsets, key: standing.offsets["lsn"]}))
        ingest(**fed).execute(context)
    assert len(spark_submit.calls) == 2
    feed(orders, standing)
    parked = FedTable(lake, "shop.lakecdc_parked")
    parked.maintain()
    ingest(**fed).execute(context)
    assert len(spark_submit.calls) == 3 and not has_watermark("2026-01-01T06:00:00")
    parked.table.delete()
    ingest(**fed).execute(context)
    assert len(spark_submit.calls) == 3 and has_watermark("2026-01-01T06:00:00")


def test_a_slot_with_much_log_or_another_reader_starts_spark(
    spark_submit: FakeSpark, context: Any, fed: dict[str, Any], postgres: Postgres
) -> None:
    with psycopg.connect(postgres.dsn, autocommit=True) as session:
        lock(session, "lakecdc")
        ingest(**fed).execute(context)
    assert len(spark_submit.calls) == 1
    execute(postgres, "CREATE TABLE filler AS SELECT repeat(md5(i::text), 40) FROM generate_series(1, 70000) i")
    ingest(**fed).execute(context)
    assert len(spark_submit.calls) == 2
    execute(postgres, "DROP TABLE filler")


def test_a_position_advanced_by_another_run_is_not_overwritten(orders: FedTable) -> None:
    before, after = (position("2026-01-01T05:00:00+00:00"), position("2026-01-01T06:00:00+00:00"))
    orders.ingest(before.read_through)
    assert record_idle_position(get_catalog("lake"), "shop.orders", before, after)
    assert position_of_orders() == after
    assert not record_idle_position(get_catalog("lake"), "shop.orders", before, after)


@pytest.mark.services
def test_an_idle_mariadb_starts_no_spark_and_the_watermark_advances(
    spark_submit: FakeSpark, context: Any, orders: FedTable, folder: Path
) -> None:
    began = datetime.now(UTC)
    with MariaDB(folder / "mariadb") as server, server.connect() as session:
        cursor = session.cursor()
        cursor.execute("SELECT concat('mariadb:', @@server_id, ':', @@gtid_domain_id)")
        identity_of_server = str(cursor.fetchall()[0][0])
        cursor.execute("SHOW MASTER STATUS")
        file, pos = cursor.fetchall()[0][:2]
        feed(orders, Position("mysql", identity_of_server, {"file": file, "pos": pos, "epoch": 1}, FIVE))
        source = {"type": "mysql", "host": "127.0.0.1", "port": server.port, "user": "root", "server_id": 7}
        ingest(source=source).execute(context)
        assert spark_submit.calls == [] and has_watermark(began)
        cursor.execute("CREATE DATABASE shop")
        ingest(source=source).execute(context)
        assert len(spark_submit.calls) == 1


@pytest.mark.services
def test_idle_topics_start_no_spark_and_the_watermark_advances(
    spark_submit: FakeSpark, context: Any, orders: FedTable, kafka: Kafka
) -> None:
    client: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers}
    admin, began = AdminClient(client), datetime.now(UTC)
    admin.create_topics([NewTopic("idle", 1, 1)])["idle"].result()
    source = {"type": "kafka", "format": "debezium-json", "topics": ["idle"]}
    source["bootstrap_servers"] = kafka.bootstrap_servers
    (described,) = LibrdkafkaCluster(client).topics(lambda name: name == "idle").values()
    topics: dict[str, Any] = {"idle": {"id": described.id, "next": [0]}}
    feed(orders, Position("kafka", "topic-ids", {"epoch": 1, "topics": topics}, FIVE))
    ingest(source=source).execute(context)
    assert spark_submit.calls == [] and has_watermark(began)
    # a new partition starts at its beginning, and a run must know it
    admin.create_partitions([NewPartitions("idle", 2)])["idle"].result()
    ingest(source=source).execute(context)
    assert len(spark_submit.calls) == 1
    topics["idle"]["next"] = [0, 0]
    feed(orders, Position("kafka", "topic-ids", {"epoch": 1, "topics": topics}, FIVE))
    producer = Producer(client)
    producer.produce("idle", b"x", partition=1)
    producer.flush()
    ingest(source=source).execute(context)
    assert len(spark_submit.calls) == 2 and not has_watermark(began)


@pytest.mark.parametrize("pattern", ["{}", "{}/*.jsonl", "file://{}"])
def test_files_read_before_start_no_spark(
    spark_submit: FakeSpark, context: Any, orders: FedTable, tmp_path: Path, pattern: str
) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    for name in ("a b.jsonl", "ü.jsonl", "_SUCCESS", ".part"):
        (folder / name).touch()
    read = [f"file://{folder}/{name}" for name in ("a%20b.jsonl", "ü.jsonl")]
    feed(orders, Position("files", "files", {"seen": "".join(sorted(map(fingerprint, read))), "count": 2}, FIVE))
    source = {"type": "files", "path": pattern.format(folder), "format": "debezium-json"}
    facts = ingest(source=source).execute(context)["shop.orders"]
    assert spark_submit.calls == [] and facts["outcome"] == "nothing" and has_watermark(FIVE)
    (folder / "d.jsonl").touch()
    ingest(source=source).execute(context)
    assert len(spark_submit.calls) == 1


@pytest.mark.parametrize("path", ["{}/empty", "{}/{{a,b}}.jsonl", "{}/*/c.jsonl", "{}/nested"])
def test_files_that_only_spark_can_list_start_spark(
    spark_submit: FakeSpark, context: Any, orders: FedTable, tmp_path: Path, path: str
) -> None:
    for name in ("empty", "nested/day=1"):
        (tmp_path / "events" / name).mkdir(parents=True)
    feed(orders, Position("files", "files", {"seen": "", "count": 0}, FIVE))
    source = {"type": "files", "path": path.format(tmp_path / "events"), "format": "debezium-json"}
    ingest(source=source).execute(context)
    assert len(spark_submit.calls) == 1
