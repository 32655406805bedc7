"""What is told of a source without Spark, asked of real servers; nothing is made or moved there."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lakecdc.contract.findings import Finding, State
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.sources.postgres import administration, slots
from lakecdc.metadata.positions import Position
from lakecdc.probes import source_checks
from local_services.kafka import Kafka
from local_services.mariadb import MariaDB
from local_services.postgres import Postgres
from local_services.process import free_port
from tests.open_folder import open_folder

Check = Callable[..., dict[str, Finding]]
NEVER_FED: dict[str, str] = {}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that any account may enter, which ``tmp_path`` is not."""
    with open_folder() as found:
        yield found


@pytest.fixture(scope="module")
def postgres(folder: Path) -> Iterator[Postgres]:
    """A server with two tables of which one login may read one."""
    with Postgres(folder / "postgres") as started:
        with psycopg.connect(started.dsn, autocommit=True) as session:
            session.execute("CREATE SCHEMA shop")
            session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY)")
            session.execute("CREATE TABLE shop.items (id int)")
            session.execute("CREATE ROLE reader LOGIN")
            session.execute("GRANT USAGE ON SCHEMA shop TO reader")
        yield started


def spec(source: dict[str, Any], *tables: str) -> dict[str, Any]:
    """A spec that feeds some tables from a source."""
    properties = {"type": "sql", "uri": "sqlite:////nowhere/catalog.db", "warehouse": "file:///nowhere"}
    targets = [{"table": table, "key": ["id"]} if table != "shop.items" else {"table": table} for table in tables]
    catalog = {"name": "lake", "properties": properties}
    return {"version": 1, "job": "ingest", "catalog": catalog, "source": source, "target": targets}


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """Runs the program over a source; its findings by what they are about."""

    def run(
        source: dict[str, Any], *tables: str, positions: dict[str, str] | None = NEVER_FED, **target: Any
    ) -> dict[str, Finding]:
        whole = spec(source, *(tables or ("shop.orders",)))
        whole["target"][0] |= target
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"spec": whole, "positions": positions})))
        assert source_checks.main() == 0
        found = [Finding.of(each) for each in json.loads(capsys.readouterr().out)]
        assert all(bool(finding.remedy) == (finding.state != "ok") for finding in found)
        return {finding.check: finding for finding in found}

    return run


def states(found: dict[str, Finding]) -> dict[str, State]:
    return {name: finding.state for name, finding in found.items()}


class TestPostgres:
    """A server with logical decoding."""

    def source(self, server: Postgres, user: str = "postgres", **more: Any) -> dict[str, Any]:
        return {"type": "postgres", "dsn": f"host=127.0.0.1 port={server.port} user={user} dbname=postgres", **more}

    def test_all_is_well_before_the_first_run_and_after(self, check: Check, postgres: Postgres) -> None:
        source = self.source(postgres, slot="well")
        found = check(source)
        assert list(found) == ["source", "source login", "source slot", "slot's owner", "publication", "source tables"]
        assert {*states(found).values()} == {"ok"}
        assert "wal_level is logical" in found["source"].found and "first run makes it" in found["source slot"].found
        with psycopg.connect(postgres.dsn, autocommit=True) as session:
            assert session.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)
        administration.create(parse_spec(spec(source, "shop.orders")))
        found = check(source)
        assert {*states(found).values()} == {"ok"}
        assert "MB of log" in found["source slot"].found and "feeds these tables" in found["slot's owner"].found
        # another set of tables may not have it
        theirs = check(source, "crm.orders")
        assert theirs["slot's owner"].state == "fail" and "'well' feeds shop.orders" in theirs["slot's owner"].found
        administration.drop(parse_spec(spec(source, "shop.orders")))

    def test_a_slot_that_is_gone_is_not_made_by_the_next_run(self, check: Check, postgres: Postgres) -> None:
        source = self.source(postgres, slot="gone")
        with psycopg.connect(postgres.dsn) as session:
            cluster = slots.identity(session)
            row = session.execute("SELECT 'shop.orders'::regclass::oid::int").fetchone()
        position = Position("postgres", cluster, {"lsn": "0/1000", "oid": row[0] if row else 0})
        found = check(source, positions={"shop.orders": position.encode(), "shop.others": position.encode()})
        assert states(found)["source slot"] == states(found)["publication"] == "fail"
        assert "'gone' is gone" in found["source slot"].found and '"reload"' in str(found["source slot"].remedy)
        assert found["source tables"].state == "ok"
        # tables that another source feeds are none of its business
        assert {*states(check(source, positions={"shop.others": position.encode()})).values()} == {"ok"}
        found = check(source, positions=None)
        assert states(found)["source slot"] == "warn" and "cannot be read" in str(found["source slot"].remedy)
        found = check(source, positions={"shop.orders": replace(position, identity="4711:1").encode()})
        assert "belongs to the log" in found["source of shop.orders"].found
        found = check(source, positions={"shop.orders": replace(position, offsets={"lsn": "0/1", "oid": 1}).encode()})
        assert "made anew" in found["source of shop.orders"].found

    def test_a_misspelt_source_table_is_reported_with_near_misses(self, check: Check, postgres: Postgres) -> None:
        found = check(self.source(postgres, slot="s"), "shop.ordrs")["source of shop.ordrs"]
        assert found.state == "fail" and "Did you mean 'shop.orders'?" in str(found.remedy)

    def test_source_tables_are_looked_for_through_jdbc_too(self, check: Check, postgres: Postgres) -> None:
        url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres"
        source = {"type": "jdbc", "url": url, "user": "postgres", "cursor_column": "id"}
        found = check(source, "shop.orders", "shop.Orders")
        assert found["source tables"].found == "1 exist"
        assert "Did you mean 'shop.orders'?" in str(found["source of shop.Orders"].remedy)

    def test_patterns_stand_for_the_tables_of_the_source(self, check: Check, postgres: Postgres) -> None:
        source = self.source(postgres, slot="s")
        found = check(source, "lake.{table}", source_tables=[r"shop\.orders"])
        assert states(found)["source_tables"] == states(found)["source tables"] == "ok"
        found = check(source, "lake.{table}", source_tables=[r"shpo\..*"])
        assert states(found)["source_tables"] == "fail" and "shop.orders" in str(found["source_tables"].remedy)

    def test_what_a_login_lacks(self, check: Check, postgres: Postgres) -> None:
        found = check(self.source(postgres, "reader", slot="s"), "shop.orders", "shop.items", "shop.absent")
        assert found["source login"].remedy == "Run ALTER ROLE reader REPLICATION at the source."
        assert "GRANT CREATE ON DATABASE postgres TO reader" in str(found["publication"].remedy)
        assert "GRANT SELECT ON shop.orders" in str(found["source of shop.orders"].remedy)
        assert "no primary key" in found["source of shop.items"].found
        assert found["source of shop.absent"].state == "fail" and "source tables" not in found

    def test_a_slot_of_another_owner(self, check: Check, postgres: Postgres) -> None:
        with psycopg.connect(postgres.dsn, autocommit=True) as session:
            session.execute("SELECT pg_create_logical_replication_slot('other', 'test_decoding')")
            found = check(self.source(postgres, slot="other"))
            session.execute("SELECT pg_drop_replication_slot('other')")
        assert found["source slot"].state == "fail" and "test_decoding" in found["source slot"].found

    def test_a_server_that_is_away(self, check: Check) -> None:
        (found,) = check({"type": "postgres", "dsn": f"host=127.0.0.1 port={free_port()}", "slot": "s"}).values()
        assert (found.check, found.state) == ("source", "fail") and "cannot be reached" in found.found


@pytest.mark.services
def test_mariadb(check: Check, folder: Path) -> None:
    with MariaDB(folder / "mariadb") as server, server.connect() as session, session.cursor() as cursor:
        for statement in (
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id int PRIMARY KEY)",
            "CREATE USER reader@'127.0.0.1'",
            "GRANT SELECT ON shop.* TO reader@'127.0.0.1'",
        ):
            cursor.execute(statement)
        source = {"type": "mysql", "host": "127.0.0.1", "port": server.port}
        assert states(check({**source, "user": "root"})) == dict.fromkeys(
            ["source", "binary log", "source login", "source tables"], "ok"
        )
        found = check({**source, "user": "reader"}, "shop.orders", "shop.absent")
        assert found["source login"].state == "fail" and "BINLOG MONITOR" in str(found["source login"].remedy)
        assert found["source of shop.absent"].state == "fail" and found["source tables"].found == "1 can be read"
        misspelt = check({**source, "user": "root"}, "shop.ordr")["source of shop.ordr"]
        assert "Did you mean 'shop.orders'?" in str(misspelt.remedy)
        cursor.execute("SELECT concat('mariadb:', @@server_id, ':', @@gtid_domain_id)")
        position = Position("mysql", str(cursor.fetchall()[0][0]), {"file": "gone.000001", "pos": 4})
        found = check({**source, "user": "root"}, positions={"shop.orders": position.encode()})
        assert "The log file gone.000001 is gone" in found["source of shop.orders"].found
        assert states(check({**source, "user": "root"}, positions=None))["positions"] == "warn"
        cursor.execute("SET GLOBAL binlog_format = 'MIXED'")
        found = check({**source, "user": "root"})
        assert states(found) == {"source": "ok", "binary log": "fail"}
        assert "SET GLOBAL binlog_format = 'ROW'" in str(found["binary log"].remedy)


@pytest.mark.services
def test_kafka(check: Check, folder: Path) -> None:
    with Kafka(folder / "kafka") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for future in admin.create_topics([NewTopic("pg.shop.orders", 3, 1)]).values():
            future.result()
        source = {"type": "kafka", "format": "debezium-json", "bootstrap_servers": kafka.bootstrap_servers}
        found = check({**source, "topics": ["pg.shop.orders"]})
        assert states(found) == {"source": "ok", "source topics": "ok"} and "3 partitions" in found["source"].found
        found = check({**source, "topic_pattern": r"pg\..*"}, "shop.orders", "shop.absent")
        assert states(found) == {"source": "ok", "topics of shop.absent": "warn", "source topics": "ok"}
        (found_none,) = check({**source, "topics": ["pg.shop.absent"]}).values()
        assert found_none.state == "warn" and "no topic pg.shop.absent" in found_none.found


def test_files_and_jdbc(check: Check, tmp_path: Path) -> None:
    files = {"type": "files", "format": "debezium-json"}
    assert states(check({**files, "path": f"{tmp_path}/*.jsonl"})) == {"source files": "ok"}
    found = check({**files, "path": f"{tmp_path}/gone/*.jsonl"})["source files"]
    assert found.state == "fail" and f"{tmp_path}/gone" in found.found
    url = f"jdbc:postgresql://127.0.0.1:{free_port()}/shop"
    found = check({"type": "jdbc", "url": url, "cursor_column": "c"})["source"]
    assert found.state == "fail" and "Cannot query the database" in found.found


def test_missing_source_tables_of_jdbc_are_reported_with_near_misses(check: Check, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE Orders (id int)")
        database.execute("CREATE VIEW people AS SELECT 1 AS id")
    source = {"type": "jdbc", "url": f"jdbc:sqlite:{tmp_path}/shop.db", "cursor_column": "id"}
    found = check(source, "shop.orders", "shop.people", "shop.ordrs")
    assert found["source tables"].found == "2 exist" and found["source of shop.ordrs"].state == "fail"
    assert "Did you mean 'Orders'?" in str(found["source of shop.ordrs"].remedy)
    (tmp_path / "shop.db").write_text("no database")
    assert states(check(source)) == {"source": "ok", "source tables": "fail"}
