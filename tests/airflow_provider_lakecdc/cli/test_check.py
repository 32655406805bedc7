"""The command ``check``: this machine, real catalogs, a real Postgres."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import psycopg
import pytest

from airflow_provider_lakecdc.checks import machine
from airflow_provider_lakecdc.checks import source as source_findings
from airflow_provider_lakecdc.checks.catalog import PROBE
from airflow_provider_lakecdc.submit import launcher
from airflow_provider_lakecdc.submit.launcher import SparkTarget
from lakecdc.contract.runtime import packages
from lakecdc.metadata import names
from local_services.postgres import Postgres
from local_services.process import free_port
from tests.airflow_provider_lakecdc.cli.conftest import Lakecdc
from tests.airflow_provider_lakecdc.conftest import CATALOG_SECRET, connection
from tests.airflow_provider_lakecdc.tables import FedTable
from tests.open_folder import open_folder

Findings = dict[str, dict[str, Any]]
JAR = "org.example:driver:1.0"


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str], lakecdc: Lakecdc) -> Any:
    """Checks a configuration; gives back the exit code and the findings by what they are about."""
    FedTable(lake)
    connection(monkeypatch, "spark_default", conn_type="spark", host="local[2]")
    # nothing is asked of the network
    monkeypatch.setattr(machine, "MAVEN_CENTRAL", f"http://127.0.0.1:{free_port()}")

    def check(**parts: Any) -> tuple[int, Findings]:
        path = tmp_path / "lakecdc.json"
        path.write_text(json.dumps({"catalog_conn_id": "lake", "tables": ["shop.orders"], **parts}))
        ended = lakecdc("check", "--config", str(path), "--json")
        assert ended.err == "" and CATALOG_SECRET not in ended.out
        found: Findings = {each["check"]: each for each in ended.document}
        # what is wrong in a configuration is its remedy
        clear = {name for name, each in found.items() if each["state"] != "ok" and not each["remedy"]}
        assert clear <= {"configuration", "source"}
        return ended.code, found

    return check


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with (
        open_folder() as folder,
        Postgres(folder / "data") as started,
        psycopg.connect(started.dsn, autocommit=True) as session,
    ):
        session.execute("CREATE SCHEMA shop")
        session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY)")
        yield started


def failed(found: Findings) -> set[str]:
    return {name for name, each in found.items() if each["state"] == "fail"}


def test_all_is_well(
    configured: Any, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str], postgres: Postgres, tmp_path: Path
) -> None:
    connection(monkeypatch, "shop_db", conn_type="postgres", host="127.0.0.1", port=postgres.port, login="postgres",
               schema="postgres")  # fmt: skip
    feeding = {"source": {"type": "postgres", "slot": "s"}, "source_conn_id": "shop_db"}
    code, found = configured(**feeding, targets=[{"table": "shop.orders"}])
    assert (code, failed(found)) == (0, set())
    assert found["configuration"]["found"].startswith("lakecdc_ingest, lakecdc_hourly_governance, ")
    assert found["java"]["found"].split(".")[0] in {"17", "21"} and found["spark"]["found"].startswith("4.1.")
    assert found["namespaces"]["found"] == "1 take writes" and "first run makes it" in found["source slot"]["found"]
    assert packages(lake)[0] in found["jars"]["found"]
    # nothing is left of what was written
    assert FedTable.open(lake).load_namespace_properties("shop").keys() & {PROBE} == set()
    assert not list((tmp_path / "warehouse").glob("lakecdc_check_*"))
    # the same by the password of somebody else
    with psycopg.connect(postgres.dsn, autocommit=True) as session:
        session.execute("CREATE ROLE reader LOGIN")
    connection(monkeypatch, "shop_db", conn_type="postgres", host="127.0.0.1", port=postgres.port, login="reader",
               schema="postgres")  # fmt: skip
    code, found = configured(**feeding, targets=[{"table": "shop.orders"}])
    assert code == 1 and failed(found) == {"source login", "publication", "source of shop.orders"}


def test_connections_that_are_missing_or_of_another_type(configured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, "other", conn_type="http", host="127.0.0.1")
    files = {"source": {"type": "postgres", "slot": "s"}, "targets": [{"table": "shop.orders", "key": ["id"]}]}
    code, found = configured(catalog_conn_id="nowhere", spark={"conn_id": "other"}, **files, source_conn_id="other")
    assert code == 1 and failed(found) == {"spark connection", "catalog connection"}
    assert "AIRFLOW_CONN_NOWHERE=" in found["catalog connection"]["remedy"]
    assert found["spark connection"]["remedy"].startswith("Use a connection of one of the types spark, ")
    code, found = configured(**files, source_conn_id="other")
    assert failed(found) == {"source"} and "type 'http'" in found["source"]["found"]


@pytest.mark.sqlite
def test_a_catalog_that_takes_no_writes(configured: Any, tmp_path: Path, lake: dict[str, str]) -> None:
    code, found = configured(tables=["shop.orders", "crm.people", "*.x", "{}.y"])
    assert code == 0 and found["namespace crm"]["state"] == "warn"
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database, database:
        database.execute(
            "CREATE TRIGGER read_only BEFORE INSERT ON iceberg_namespace_properties "
            "BEGIN SELECT RAISE(ABORT, 'not for this login'); END"
        )
    code, found = configured()
    assert (
        code == 1 and failed(found) == {"namespace shop"} and "not for this login" in found["namespace shop"]["found"]
    )
    (tmp_path / "catalog.db").write_text("no database")
    code, found = configured()
    assert code == 1 and failed(found) == {"catalog"} and "DatabaseError" in found["catalog"]["found"]


@pytest.mark.sqlite
def test_places_that_take_no_files(
    configured: Any, tmp_path: Path, lake: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    connection(monkeypatch, "lake", conn_type="iceberg", extra={**lake, "warehouse": f"file://{tmp_path}/file/in"})
    monkeypatch.setenv("AIRFLOW__LAKECDC__DOCUMENTS_URI", f"file://{tmp_path}/file/in")
    code, found = configured()
    assert code == 1 and failed(found) == {"warehouse", "documents"}
    monkeypatch.setenv("AIRFLOW__LAKECDC__DOCUMENTS_URI", f"file://{tmp_path}/documents")
    connection(monkeypatch, "spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    _, found = configured()
    assert "another machine" in found["documents"]["remedy"]


def test_a_configuration_that_makes_no_dags(configured: Any) -> None:
    code, found = configured(source={"type": "postgres"}, targets=[{"table": "shop.orders"}])
    assert code == 1 and failed(found) == {"configuration"}, "one error is told once"
    code, found = configured(schedules={"ingest": "every hour"})
    assert code == 1 and "not a cron expression" in found["configuration"]["found"]


@pytest.mark.parametrize("text", ["", "{}", '{"table": ["shop.orders"]}', '{"dag_id_prefix": "shop"}'])
def test_an_empty_configuration_is_the_only_error(
    lakecdc: Lakecdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    path = tmp_path / "lakecdc.json"
    path.write_text(text)
    ended = lakecdc("check", "--config", str(path), "--json")
    found: Findings = {each["check"]: each for each in ended.document}
    assert (ended.code, failed(found)) == (1, {"configuration"})
    assert "iceberg_default" not in ended.out and "spark_default" not in ended.out


def test_a_misspelt_configured_table_is_reported_with_near_misses(configured: Any) -> None:
    _, found = configured(tables=["shop.orders", "shop.ordrs", "shop.*", "!shop.tmp_*"])
    assert found["tables"]["found"] == "1 exist" and found["table shop.ordrs"]["state"] == "warn"
    assert found["table shop.ordrs"]["remedy"].startswith("Did you mean 'shop.orders'?")


def test_the_source_is_asked_with_the_positions_of_its_tables(
    configured: Any, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str]
) -> None:
    asked: list[dict[str, Any]] = []

    def ask(_: str, question: str, __: Any) -> str:
        asked.append(json.loads(question))
        return "[]"

    monkeypatch.setattr(launcher, "ask_source", ask)
    source = {"type": "postgres", "slot": "s", "dsn": "host=127.0.0.1"}
    targets = [{"table": name, "key": ["id"]} for name in ("shop.orders", "shop.items", "shop.absent")]
    feeding = {"source": source, "targets": targets, "tables": []}
    FedTable(lake, "shop.items").ingest("2026-01-01T00:00:00+00:00")
    configured(**feeding)
    assert [*asked[0]["positions"]] == ["shop.items"] and asked[0]["spec"]["source"]["slot"] == "s"

    def unreadable(*_: Any) -> None:
        raise OSError("503 Slow Down")

    monkeypatch.setattr(source_findings, "read_positions", unreadable)
    configured(**feeding)
    assert asked[1]["positions"] is None


def test_a_master_that_does_not_answer(configured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, "spark_default", conn_type="spark", host=f"spark://127.0.0.1:{free_port()}")
    code, found = configured()
    assert code == 1 and "does not answer" in found["spark connection"]["found"]
    connection(monkeypatch, "spark_default", conn_type="spark", host="yarn")
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert "HADOOP_CONF_DIR" in configured()[1]["spark connection"]["remedy"]


def test_java_and_spark_of_other_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("bin/java", "bin/spark-submit", "jars/spark-core_2.13-4.2.1.jar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\necho 'openjdk version \"25.0.1\"' >&2\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = machine.java()
    assert found.state == "fail" and "is Java 25" in found.found and "17 to 23" in found.found
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert machine.java().found == f"Cannot find java in {tmp_path}/gone."
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    states = {each.check: (each.state, each.found) for each in machine.spark(SparkTarget("local", False))}
    assert states["spark-submit"] == ("ok", f"{tmp_path}/bin/spark-submit")
    assert states["spark"][0] == "fail" and states["spark"][1].startswith("4.2.1;")
    assert {each.check: each.state for each in machine.spark(SparkTarget("local", False, "spark4-submit"))} == {
        "spark-submit": "fail",
        "pyspark": "ok",
    }


def test_jars_from_a_cache_and_from_a_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "MAVEN_CENTRAL", f"http://127.0.0.1:{free_port()}")
    jar = tmp_path / "org/example/driver/1.0/driver-1.0.jar"
    conf = {"spark.jars.ivy": str(tmp_path / "ivy")}
    with HTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        mirror = f"http://127.0.0.1:{server.server_port}/"
        found = machine.jars([JAR], conf, mirror)
        assert found.state == "warn" and JAR in found.found and "repositories" in str(found.remedy)
        jar.parent.mkdir(parents=True)
        jar.touch()
        found = machine.jars([JAR], conf, mirror)
        assert found.state == "ok" and "fetched by the first job" in found.found
        server.shutdown()
    cached = tmp_path / "ivy/cache/org.example/driver/jars/driver-1.0.jar"
    cached.parent.mkdir(parents=True)
    cached.touch()
    assert machine.jars([JAR], conf, None).found == f"{JAR} in {tmp_path}/ivy"


def test_each_remedy_is_shown_below_its_finding(
    lakecdc: Lakecdc, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(machine, "MAVEN_CENTRAL", f"http://127.0.0.1:{free_port()}")
    ended = lakecdc("check", "--catalog", "lake")
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in ended.out.splitlines()]
    assert ended.code == 1 and max(map(len, lines)) <= 80
    (number,) = (number for number, line in enumerate(lines) if line.startswith("fail"))
    assert lines[number].startswith("fail  spark connection ")
    text = " ".join(line[25:].strip() for line in lines[number : number + 6])
    assert "Connection 'spark_default' to submit the Spark job to does not exist. → Create it," in text


def test_readers_choose_forms_and_tables_that_do_not_fit_are_named(configured: Any, lake: dict[str, str]) -> None:
    files = {"source": {"type": "postgres", "slot": "s"}, "source_conn_id": "nowhere"}
    items = FedTable(lake, "shop.items")
    items.ingest(None)
    items.delete(7)
    parts: dict[str, Any] = {
        **files,
        "readers": ["trino"],
        "policy": {"shop.i*": {"readers": ["snowflake"]}},
        "targets": [{"table": "shop.orders", "key": ["id"]}, {"table": "shop.items", "key": ["id"]}],
    }
    _, found = configured(**parts)
    assert found["readers of shop.orders"]["found"] == (
        "trino: Format version 2 with equality deletes, which all its readers can read."
    )
    # one line says what is chosen, the other that the table is different
    misfit = found["readers of shop.items"]
    assert (misfit["state"], misfit["remedy"]) == ("warn", "Run the job set_readers.")
    assert misfit["found"] == "The table has format version 2, and Snowflake cannot read equality deletes."
    assert found["readers"]["found"] == "1 tables fit their readers"
    # a history table has no deletes, so that version 2 will do for readers that need vectors elsewhere
    FedTable(lake, "shop.orders_log").ingest(None)
    many = {"table": "shop.{table}", "source_tables": ["x"], "history_table": "shop.{table}_log", "key": ["id"]}
    _, found = configured(**files, targets=[{**many, "readers": ["databricks"]}])
    assert {name for name, each in found.items() if name.startswith("readers of") and each["state"] == "warn"} == {
        "readers of shop.orders",
        "readers of shop.items",
    }
    code, found = configured(**{**parts, "readers": ["athena", "databricks"]})
    assert code == 1 and "Amazon Athena and Databricks Runtime 18" in found["configuration"]["found"]
    assert not [name for name in found if name.startswith("readers")]


def test_readers_recorded_in_a_table_are_looked_at_without_a_configured_one(
    configured: Any, lake: dict[str, str]
) -> None:
    people = FedTable(lake, "shop.people")
    with people.table.transaction() as transaction:
        transaction.set_properties({names.READERS: "pyiceberg,databricks"})
    tables = ["shop.orders", "shop.people"]
    assert configured(tables=tables)[1]["readers"]["found"] == "1 tables fit their readers"
    people.ingest(None)
    people.delete(3, by_position=True)
    _, found = configured(tables=tables)
    assert found["readers of shop.people"]["found"].endswith("Databricks Runtime 18 cannot read position deletes.")
