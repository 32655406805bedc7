"""Checks of real source servers without Spark and without changes to them."""

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
    """Yield a folder that any account may enter, unlike ``tmp_path``."""
    with open_folder() as opened:
        yield opened


@pytest.fixture(scope="module")
def postgres(folder: Path) -> Iterator[Postgres]:
    """Start a server with two tables, of which one login may read one."""
    with Postgres(folder / "postgres") as started:
        with psycopg.connect(started.dsn, autocommit=True) as session:
            session.execute("CREATE SCHEMA shop")
            session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY)")
            session.execute("CREATE TABLE shop.items (id int)")
            session.execute("CREATE ROLE reader LOGIN")
            session.execute("GRANT USAGE ON SCHEMA shop TO reader")
        yield started


def spec(source: dict[str, Any], *tables: str) -> dict[str, Any]:
    """Return a spec that feeds tables from a source."""
    properties = {"type": "sql", "uri": "sqlite:////nowhere/catalog.db", "warehouse": "file:///nowhere"}
    targets = [{"table": table, "key": ["id"]} if table != "shop.items" else {"table": table} for table in tables]
    catalog = {"name": "lake", "properties": properties}
    return {"version": 1, "job": "ingest", "catalog": catalog, "source": source, "target": targets}


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """Return a function that checks a source and returns the findings by name."""

    def run(
        source: dict[str, Any], *tables: str, positions: dict[str, str] | None = NEVER_FED, **target: Any
    ) -> dict[str, Finding]:
        whole = spec(source, *(tables or ("shop.orders",)))
        whole["target"][0] |= target
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"spec": whole, "positions": positions})))
        assert source_checks.main() == 0
        findings = [Finding.of(each) for each in json.loads(capsys.readouterr().out)]
        assert all(bool(finding.remedy) == (finding.state != "ok") for finding in findings)
        return {finding.check: finding for finding in findings}

    return run


def states(findings: dict[str, Finding]) -> dict[str, State]:
    return {name: finding.state for name, finding in findings.items()}


class TestPostgres:
    """A server with logical decoding."""

    def source(self, server: Postgres, user: str = "postgres", **more: Any) -> dict[str, Any]:
        return {"type": "postgres", "dsn": f"host=127.0.0.1 port={server.port} user={user} dbname=postgres", **more}

    def test_all_checks_pass_before_and_after_the_first_run(self, check: Check, postgres: Postgres) -> None:
        source = self.source(postgres, slot="well")
        findings = check(source)
        assert list(findings) == [
            "source",
            "source login",
            "source slot",
            "slot's owner",
            "publication",
            "source tables",
        ]
        assert {*states(findings).values()} == {"ok"}
        assert (
            "wal_level is logical" in findings["source"].result
            and "first run creates it" in findings["source slot"].result
        )
        with psycopg.connect(postgres.dsn, autocommit=True) as session:
            assert session.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)
        administration.create(parse_spec(spec(source, "shop.orders")))
        findings = check(source)
        assert {*states(findings).values()} == {"ok"}
        assert "MB of log" in findings["source slot"].result and "feeds these tables" in findings["slot's owner"].result
        # another set of tables must not use it
        theirs = check(source, "crm.orders")
        assert theirs["slot's owner"].state == "fail" and "'well' feeds shop.orders" in theirs["slot's owner"].result
        administration.drop(parse_spec(spec(source, "shop.orders")))

    def test_a_missing_slot_of_a_fed_table_fails(self, check: Check, postgres: Postgres) -> None:
        source = self.source(postgres, slot="gone")
        with psycopg.connect(postgres.dsn) as session:
            cluster = slots.identity(session)
            row = session.execute("SELECT 'shop.orders'::regclass::oid::int").fetchone()
        position = Position("postgres", cluster, {"lsn": "0/1000", "oid": row[0] if row else 0})
        findings = check(source, positions={"shop.orders": position.encode(), "shop.others": position.encode()})
        assert states(findings)["source slot"] == states(findings)["publication"] == "fail"
        assert "no longer has the slot 'gone'" in findings["source slot"].result and '"reload"' in str(
            findings["source slot"].remedy
        )
        assert findings["source tables"].state == "ok"
        # tables fed by another source are ignored
        assert {*states(check(source, positions={"shop.others": position.encode()})).values()} == {"ok"}
        findings = check(source, positions=None)
        assert states(findings)["source slot"] == "warn" and "cannot be read" in str(findings["source slot"].remedy)
        findings = check(source, positions={"shop.orders": replace(position, identity="4711:1").encode()})
        assert "belongs to the log" in findings["source of shop.orders"].result
        findings = check(
            source, positions={"shop.orders": replace(position, offsets={"lsn": "0/1", "oid": 1}).encode()}
        )
        assert "recreated" in findings["source of shop.orders"].result

    def test_a_misspelt_source_table_is_reported_with_near_misses(self, check: Check, postgres: Postgres) -> None:
        finding = check(self.source(postgres, slot="s"), "shop.ordrs")["source of shop.ordrs"]
        assert finding.state == "fail" and "Did you mean 'shop.orders'?" in str(finding.remedy)

    def test_source_tables_are_also_checked_through_jdbc(self, check: Check, postgres: Postgres) -> None:
        url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres"
        source = {"type": "jdbc", "url": url, "user": "postgres", "cursor_column": "id"}
        findings = check(source, "shop.orders", "shop.Orders")
        assert findings["source tables"].result == "1 exist"
        assert "Did you mean 'shop.orders'?" in str(findings["source of shop.Orders"].remedy)

    def test_patterns_select_tables_of_the_source(self, check: Check, postgres: Postgres) -> None:
        source = self.source(postgres, slot="s")
        findings = check(source, "lake.{table}", source_tables=[r"shop\.orders"])
        assert states(findings)["source_tables"] == states(findings)["source tables"] == "ok"
        findings = check(source, "lake.{table}", source_tables=[r"shpo\..*"])
        assert states(findings)["source_tables"] == "fail" and "shop.orders" in str(findings["source_tables"].remedy)

    def test_missing_privileges_are_reported_with_the_statement(self, check: Check, postgres: Postgres) -> None:
        findings = check(self.source(postgres, "reader", slot="s"), "shop.orders", "shop.items", "shop.absent")
        assert findings["source login"].remedy == "Run ALTER ROLE reader REPLICATION at the source."
        assert "GRANT CREATE ON DATABASE postgres TO reader" in str(findings["publication"].remedy)
        assert "GRANT SELECT ON shop.orders" in str(findings["source of shop.orders"].remedy)
        assert "no primary key" in findings["source of shop.items"].result
        assert findings["source of shop.absent"].state == "fail" and "source tables" not in findings

    def test_a_slot_of_another_owner_fails(self, check: Check, postgres: Postgres) -> None:
        with psycopg.connect(postgres.dsn, autocommit=True) as session:
            session.execute("SELECT pg_create_logical_replication_slot('other', 'test_decoding')")
            findings = check(self.source(postgres, slot="other"))
            session.execute("SELECT pg_drop_replication_slot('other')")
        assert findings["source slot"].state == "fail" and "test_decoding" in findings["source slot"].result

    def test_an_unreachable_server_fails(self, check: Check) -> None:
        (finding,) = check({"type": "postgres", "dsn": f"host=127.0.0.1 port={free_port()}", "slot": "s"}).values()
        assert (finding.check, finding.state) == ("source", "fail") and "cannot be reached" in finding.result


@pytest.mark.services
def test_mariadb_is_checked(check: Check, folder: Path) -> None:
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
        findings = check({**source, "user": "reader"}, "shop.orders", "shop.absent")
        assert findings["source login"].state == "fail" and "BINLOG MONITOR" in str(findings["source login"].remedy)
        assert findings["source of shop.absent"].state == "fail" and findings["source tables"].result == "1 can be read"
        misspelt = check({**source, "user": "root"}, "shop.ordr")["source of shop.ordr"]
        assert "Did you mean 'shop.orders'?" in str(misspelt.remedy)
        cursor.execute("SELECT concat('mariadb:', @@server_id, ':', @@gtid_domain_id)")
        position = Position("mysql", str(cursor.fetchall()[0][0]), {"file": "gone.000001", "pos": 4})
        findings = check({**source, "user": "root"}, positions={"shop.orders": position.encode()})
        assert "no longer has the log file gone.000001" in findings["source of shop.orders"].result
        assert states(check({**source, "user": "root"}, positions=None))["positions"] == "warn"
        cursor.execute("SET GLOBAL binlog_format = 'MIXED'")
        findings = check({**source, "user": "root"})
        assert states(findings) == {"source": "ok", "binary log": "fail"}
        assert "SET GLOBAL binlog_format = 'ROW'" in str(findings["binary log"].remedy)


@pytest.mark.services
def test_kafka_topics_are_checked(check: Check, folder: Path) -> None:
    with Kafka(folder / "kafka") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for future in admin.create_topics([NewTopic("pg.shop.orders", 3, 1)]).values():
            future.result()
        source = {"type": "kafka", "format": "debezium-json", "bootstrap_servers": kafka.bootstrap_servers}
        findings = check({**source, "topics": ["pg.shop.orders"]})
        assert (
            states(findings) == {"source": "ok", "source topics": "ok"} and "3 partitions" in findings["source"].result
        )
        findings = check({**source, "topic_pattern": r"pg\..*"}, "shop.orders", "shop.absent")
        assert states(findings) == {"source": "ok", "topics of shop.absent": "warn", "source topics": "ok"}
        (finding,) = check({**source, "topics": ["pg.shop.absent"]}).values()
        assert finding.state == "warn" and "no topic pg.shop.absent" in finding.result


def test_files_and_jdbc_sources_are_checked(check: Check, tmp_path: Path) -> None:
    files = {"type": "files", "format": "debezium-json"}
    assert states(check({**files, "path": f"{tmp_path}/*.jsonl"})) == {"source files": "ok"}
    finding = check({**files, "path": f"{tmp_path}/gone/*.jsonl"})["source files"]
    assert finding.state == "fail" and f"{tmp_path}/gone" in finding.result
    url = f"jdbc:postgresql://127.0.0.1:{free_port()}/shop"
    finding = check({"type": "jdbc", "url": url, "cursor_column": "c"})["source"]
    assert finding.state == "fail" and "Cannot query the database" in finding.result


def test_missing_source_tables_of_jdbc_are_reported_with_near_misses(check: Check, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE Orders (id int)")
        database.execute("CREATE VIEW people AS SELECT 1 AS id")
    source = {"type": "jdbc", "url": f"jdbc:sqlite:{tmp_path}/shop.db", "cursor_column": "id"}
    findings = check(source, "shop.orders", "shop.people", "shop.ordrs")
    assert findings["source tables"].result == "2 exist" and findings["source of shop.ordrs"].state == "fail"
    assert "Did you mean 'Orders'?" in str(findings["source of shop.ordrs"].remedy)
    (tmp_path / "shop.db").write_text("no database")
    assert states(check(source)) == {"source": "ok", "source tables": "fail"}
