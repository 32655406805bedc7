"""The ingest operator asks its source before it starts Spark: one that is down fails the task at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from airflow_provider_lakecdc.exceptions import JobBadInputError, JobClusterError
from airflow_provider_lakecdc.operators.ingest import IngestOperator
from airflow_provider_lakecdc.submit import launcher
from lakecdc.ingest.sources.postgres.slots import identity
from lakecdc.metadata import names
from lakecdc.metadata.positions import Position
from local_services.kafka import Kafka
from local_services.postgres import Postgres
from local_services.process import free_port
from tests.airflow_provider_lakecdc.conftest import DATABASE_SECRET, FakeSpark, connection
from tests.airflow_provider_lakecdc.tables import ROW, FedTable
from tests.open_folder import open_folder

TARGETS = [{"table": "shop.orders", "key": ["id"]}]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that any account may enter, which ``tmp_path`` is not."""
    with open_folder() as found:
        yield found


@pytest.fixture(scope="module")
def postgres(folder: Path) -> Iterator[Postgres]:
    """A server with a source table and a login that needs a password."""
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


@pytest.fixture
def orders(lake: dict[str, str]) -> FedTable:
    """The target, which was never fed."""
    return FedTable(lake)


def feed(table: FedTable, position: Position) -> None:
    """Commit a row that has taken the table so far."""
    table.table.refresh()
    table.table.append(ROW, snapshot_properties={names.POSITIONS: position.encode()})


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
@pytest.mark.usefixtures("orders")
def test_a_source_that_is_down_fails_the_task_before_spark_is_started(
    spark_submit: FakeSpark, context: Any, monkeypatch: pytest.MonkeyPatch, kind: str, source: dict[str, Any]
) -> None:
    port = free_port()
    fields = {"host": "127.0.0.1", "port": port, "login": "reader", "password": DATABASE_SECRET, "schema": "shop"}
    if kind == "kafka":
        # the client gives up after half a minute otherwise
        monkeypatch.setattr(launcher, "_SOURCE_SECONDS", 120)
        fields = {"extra": {"bootstrap.servers": f"127.0.0.1:{port}"}}
    connection(monkeypatch, "shop", conn_type=kind, **fields)
    with pytest.raises(JobClusterError, match=rf"127\.0\.0\.1:{port}(.|\n)*Spark was not started") as down:
        ingest(source=source, source_conn_id="shop").execute(context)
    assert spark_submit.calls == []
    assert DATABASE_SECRET not in str(down.value)


def test_a_refused_login_does_not_tell_the_password(
    spark_submit: FakeSpark, context: Any, orders: FedTable, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"host": "127.0.0.1", "port": postgres.port, "login": "reader", "schema": "postgres"}
    connection(monkeypatch, "shop", conn_type="postgres", password="wr0ng-word", **fields)
    with pytest.raises(JobBadInputError, match="password authentication failed") as refused:
        ingest(source={"type": "postgres", "slot": "s"}, source_conn_id="shop").execute(context)
    assert "wr0ng-word" not in str(refused.value) and spark_submit.calls == []


def test_a_slot_that_is_gone_fails_the_task_before_spark_is_started(
    spark_submit: FakeSpark, context: Any, orders: FedTable, postgres: Postgres
) -> None:
    source = {"type": "postgres", "slot": "gone", "dsn": postgres.dsn}
    # of a table that was never fed, the run makes it
    ingest(source=source).execute(context)
    assert len(spark_submit.calls) == 1
    with psycopg.connect(postgres.dsn) as session:
        feed(orders, Position("postgres", identity(session), {"lsn": "0/1000"}))
    with pytest.raises(JobBadInputError, match="The slot 'gone' is gone"):
        ingest(source=source).execute(context)
    with pytest.raises(JobBadInputError, match="create is false"):
        ingest(source={**source, "create": False}, reload=["*"]).execute(context)
    # a full load makes it anew
    ingest(source=source, reload=["*"]).execute(context)
    assert len(spark_submit.calls) == 2


@pytest.mark.services
def test_a_topic_that_is_missing_fails_the_task_before_spark_is_started(
    spark_submit: FakeSpark, context: Any, orders: FedTable, folder: Path
) -> None:
    with Kafka(folder / "kafka") as kafka:
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


def test_a_folder_that_is_missing_fails_the_task_before_spark_is_started(
    spark_submit: FakeSpark, context: Any, orders: FedTable, tmp_path: Path
) -> None:
    source = {"type": "files", "path": f"{tmp_path}/gone/*.jsonl", "format": "debezium-json"}
    with pytest.raises(JobBadInputError, match=f"no folder {tmp_path}/gone"):
        ingest(source=source).execute(context)
    assert spark_submit.calls == []
