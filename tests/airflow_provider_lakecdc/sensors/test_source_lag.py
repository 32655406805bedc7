"""The sensor of source lag, with a real Postgres and a real Kafka."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from airflow_provider_lakecdc.exceptions import JobBadInputError, LakecdcJobError
from airflow_provider_lakecdc.sensors.source_lag import SourceLagSensor
from lakecdc.ingest.sources.postgres.slots import identity
from lakecdc.metadata import names
from lakecdc.metadata.positions import Position
from local_services.kafka import Kafka
from local_services.postgres import Postgres
from tests.airflow_provider_lakecdc.conftest import connection
from tests.airflow_provider_lakecdc.tables import ROW, FedTable
from tests.open_folder import open_folder

MEGABYTE = 1024**2


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Yield a folder that any account may enter, unlike ``tmp_path``."""
    with open_folder() as entered:
        yield entered


@pytest.fixture(scope="module")
def postgres(folder: Path) -> Iterator[Postgres]:
    """Start a server with a table to write to."""
    with Postgres(folder / "postgres") as started:
        with psycopg.connect(started.dsn, autocommit=True) as session:
            session.execute("CREATE TABLE filler (text text)")
        yield started


def feed(table: FedTable, position: Position) -> None:
    """Commit a row with a position."""
    table.table.append(ROW, snapshot_properties={names.POSITIONS: position.encode()})


def sensor(**arguments: Any) -> SourceLagSensor:
    defaults = {"task_id": "lag", "tables": ["shop.orders"], "catalog_conn_id": "lake", "source_conn_id": "shop"}
    source = {"type": "postgres", "slot": "lakecdc"}
    return SourceLagSensor(
        **{**defaults, "source": source, "max_lag": 3 * MEGABYTE, "poke_interval": 0.01, "timeout": 0.05, **arguments}
    )


@pytest.fixture
def orders(lake: dict[str, str], postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> FedTable:
    """Make a table at the end of the log."""
    parts = psycopg.conninfo.conninfo_to_dict(postgres.dsn)
    fields = {"host": parts["host"], "port": int(str(parts["port"])), "login": parts["user"], "schema": parts["dbname"]}
    connection(monkeypatch, "shop", conn_type="postgres", password="s3cr3t-of-the-shop", **fields)
    fed = FedTable(lake)
    feed(fed, at_the_end(postgres))
    return fed


def at_the_end(postgres: Postgres) -> Position:
    """Return the position at the end of the log."""
    with psycopg.connect(postgres.dsn) as session:
        row = session.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
        assert row is not None
        return Position("postgres", identity(session), {"lsn": str(row[0])})


def write(postgres: Postgres) -> None:
    """Write eight megabytes of log."""
    with psycopg.connect(postgres.dsn, autocommit=True) as session:
        session.execute("INSERT INTO filler SELECT repeat(md5(i::text), 8) FROM generate_series(1, 30000) i")


def test_it_waits_until_the_log_or_the_table_has_advanced(context: Any, orders: FedTable, postgres: Postgres) -> None:
    lag_by_table = sensor(until="below").execute(context)
    assert 0 <= lag_by_table["shop.orders"] < 3 * MEGABYTE
    with pytest.raises(AirflowSensorTimeout):
        sensor().execute(context)
    write(postgres)
    assert sensor().execute(context)["shop.orders"] > 3 * MEGABYTE
    with pytest.raises(AirflowSensorTimeout):
        sensor(until="below").execute(context)
    feed(orders, at_the_end(postgres))
    assert sensor(until="below").execute(context)
    # a missing table is behind by the whole log
    both = {"tables": "shop.orders, shop.items"}
    with pytest.raises(AirflowSensorTimeout):
        sensor(until="below", **both).execute(context)
    assert sensor(**both).execute(context) == {"shop.items": None}


@pytest.mark.usefixtures("separate_probes")
def test_the_trigger_resumes_the_sensor(context: Any, orders: FedTable, postgres: Postgres) -> None:
    write(postgres)
    path, arguments = sensor(deferrable=True).trigger().serialize()
    assert "s3cr3t" not in str(arguments)
    module, _, name = path.rpartition(".")
    waiting = getattr(importlib.import_module(module), name)(**arguments)

    async def first() -> Any:
        async for event in waiting.run():
            return event.payload

    lag_by_table = sensor(deferrable=True).execute_complete(context, asyncio.run(first()))
    assert lag_by_table["shop.orders"] > 3 * MEGABYTE


@pytest.mark.usefixtures("separate_probes")
def test_an_unreachable_source_fails_the_task(context: Any, orders: FedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobBadInputError, match="Cannot measure the lag"):
        sensor(source={"type": "jdbc", "cursor_column": "id"}).execute(context)
    feed(orders, Position("postgres", "another cluster", {"lsn": "0/1"}))
    with pytest.raises(JobBadInputError, match="belongs to the log of another cluster"):
        sensor().execute(context)
    connection(monkeypatch, "shop", conn_type="postgres", host="127.0.0.1", port=1, login="nobody")
    with pytest.raises(LakecdcJobError, match="Cannot query the source") as away:
        sensor().execute(context)
    # the next try may reach it
    assert not isinstance(away.value, JobBadInputError)


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"until": "beside"}, "beside"),
        ({"tables": ""}, "tables is empty"),
        ({"max_lag": "few"}, "few"),
        ({"max_lag": -1}, "-1"),
    ],
)
def test_invalid_arguments_fail_at_once(context: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(AirflowFailException, match=message):
        sensor(**arguments).execute(context)


@pytest.mark.services
def test_messages_of_all_partitions_count(
    context: Any, lake: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = FedTable(lake)
    topics = {"shop.orders": {"id": "", "next": [1, 0]}}
    feed(orders, Position("kafka", "cluster-1", {"epoch": 0, "topics": topics}))
    with Kafka(folder / "kafka") as kafka:
        connection(monkeypatch, "events", conn_type="kafka", extra={"bootstrap.servers": kafka.bootstrap_servers})
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        # the table does not know the third partition yet
        admin.create_topics([NewTopic("shop.orders", 3, 1)])["shop.orders"].result()
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for number in range(5):
            producer.produce("shop.orders", b"x", partition=number % 3)
        producer.flush()
        source = {"type": "kafka", "format": "debezium-json", "topics": ["shop.orders"]}
        source_arguments = {"source": source, "source_conn_id": "events"}
        # five messages exist, one was read
        assert sensor(**source_arguments, max_lag=3).execute(context) == {"shop.orders": 4}
        assert sensor(**source_arguments, max_lag="4", until="below").execute(context) == {"shop.orders": 4}
        with pytest.raises(AirflowSensorTimeout):
            sensor(**source_arguments, max_lag=4).execute(context)
        feed(orders, Position("kafka", "cluster-1", {"epoch": 0, "topics": {"shop.orders": {"id": "", "next": [7]}}}))
        with pytest.raises(JobBadInputError, match="ends before the offset 7"):
            sensor(**source_arguments).execute(context)
