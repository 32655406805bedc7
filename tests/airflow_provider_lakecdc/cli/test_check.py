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
    """Return a function that checks a configuration and returns exit code and findings by check."""
    FedTable(lake)
    connection(monkeypatch, "spark_default", conn_type="spark", host="local[2]")
    # no requests to the network
    monkeypatch.setattr(machine, "MAVEN_CENTRAL", f"http://127.0.0.1:{free_port()}")

    def check(**parts: Any) -> tuple[int, Findings]:
        path = tmp_path / "lakecdc.json"
        path.write_text(json.dumps({"catalog_conn_id": "lake", "tables": ["shop.orders"], **parts}))
        ended = lakecdc("check", "--config", str(path), "--json")
        assert ended.err == "" and CATALOG_SECRET not in ended.out
        findings: Findings = {each["check"]: each for each in ended.document}
        # the error of a configuration is its remedy
        clear = {name for name, each in findings.items() if each["state"] != "ok" and not each["remedy"]}
        assert clear <= {"configuration", "source"}
        return ended.code, findings

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


def failed(findings: Findings) -> set[str]:
    return {name for name, each in findings.items() if each["state"] == "fail"}


def test_a_working_deployment_passes(
    configured: Any, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str], postgres: Postgres, tmp_path: Path
) -> None:
    connection(monkeypatch, "shop_db", conn_type="postgres", host="127.0.0.1", port=postgres.port, login="postgres",
               schema="postgres")  # fmt: skip
    feeding = {"source": {"type": "postgres", "slot": "s"}, "source_conn_id": "shop_db"}
    code, findings = configured(**feeding, targets=[{"table": "shop.orders"}])
    assert (code, failed(findings)) == (0, set())
    assert findings["configuration"]["found"].startswith("lakecdc_ingest, lakecdc_hourly_governance, ")
    assert findings["java"]["found"].split(".")[0] in {"17", "21"} and findings["spark"]["found"].startswith("4.1.")
    assert (
        findings["namespaces"]["found"] == "1 take writes"
        and "first run creates it" in findings["source slot"]["found"]
    )
    assert packages(lake)[0] in findings["jars"]["found"]
    # the written test files are removed
    assert FedTable.open(lake).load_namespace_properties("shop").keys() & {PROBE} == set()
    assert not list((tmp_path / "warehouse").glob("lakecdc_check_*"))
    # with the password of another user
    with psycopg.connect(postgres.dsn, autocommit=True) as session:
        session.execute("CREATE ROLE reader LOGIN")
    connection(monkeypatch, "shop_db", conn_type="postgres", host="127.0.0.1", port=postgres.port, login="reader",
               schema="postgres")  # fmt: skip
    code, findings = configured(**feeding, targets=[{"table": "shop.orders"}])
    assert code == 1 and failed(findings) == {"source login", "publication", "source of shop.orders"}


def test_missing_connections_and_those_of_another_type_fail(configured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, "other", conn_type="http", host="127.0.0.1")
    files = {"source": {"type": "postgres", "slot": "s"}, "targets": [{"table": "shop.orders", "key": ["id"]}]}
    code, findings = configured(catalog_conn_id="nowhere", spark={"conn_id": "other"}, **files, source_conn_id="other")
    assert code == 1 and failed(findings) == {"spark connection", "catalog connection"}
    assert "AIRFLOW_CONN_NOWHERE=" in findings["catalog connection"]["remedy"]
    assert findings["spark connection"]["remedy"].startswith("Use a connection of one of the types spark, ")
    code, findings = configured(**files, source_conn_id="other")
    assert failed(findings) == {"source"} and "type 'http'" in findings["source"]["found"]


@pytest.mark.sqlite
def test_a_read_only_catalog_fails(configured: Any, tmp_path: Path, lake: dict[str, str]) -> None:
    code, findings = configured(tables=["shop.orders", "crm.people", "*.x", "{}.y"])
    assert code == 0 and findings["namespace crm"]["state"] == "warn"
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database, database:
        database.execute(
            "CREATE TRIGGER read_only BEFORE INSERT ON iceberg_namespace_properties "
            "BEGIN SELECT RAISE(ABORT, 'not for this login'); END"
        )
    code, findings = configured()
    assert (
        code == 1
        and failed(findings) == {"namespace shop"}
        and "not for this login" in findings["namespace shop"]["found"]
    )
    (tmp_path / "catalog.db").write_text("no database")
    code, findings = configured()
    assert code == 1 and failed(findings) == {"catalog"} and "DatabaseError" in findings["catalog"]["found"]


@pytest.mark.sqlite
def test_read_only_folders_fail(
    configured: Any, tmp_path: Path, lake: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    connection(monkeypatch, "lake", conn_type="iceberg", extra={**lake, "warehouse": f"file://{tmp_path}/file/in"})
    monkeypatch.setenv("AIRFLOW__LAKECDC__DOCUMENTS_URI", f"file://{tmp_path}/file/in")
    code, findings = configured()
    assert code == 1 and failed(findings) == {"warehouse", "documents"}
    monkeypatch.setenv("AIRFLOW__LAKECDC__DOCUMENTS_URI", f"file://{tmp_path}/documents")
    connection(monkeypatch, "spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    _, findings = configured()
    assert "another machine" in findings["documents"]["remedy"]


def test_a_configuration_without_dags_fails(configured: Any) -> None:
    code, findings = configured(source={"type": "postgres"}, targets=[{"table": "shop.orders"}])
    assert code == 1 and failed(findings) == {"configuration"}, "one error is reported once"
    code, findings = configured(schedules={"ingest": "every hour"})
    assert code == 1 and "not a cron expression" in findings["configuration"]["found"]


@pytest.mark.parametrize("text", ["", "{}", '{"table": ["shop.orders"]}', '{"dag_id_prefix": "shop"}'])
def test_an_empty_configuration_is_the_only_error(
    lakecdc: Lakecdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    path = tmp_path / "lakecdc.json"
    path.write_text(text)
    ended = lakecdc("check", "--config", str(path), "--json")
    findings: Findings = {each["check"]: each for each in ended.document}
    assert (ended.code, failed(findings)) == (1, {"configuration"})
    assert "iceberg_default" not in ended.out and "spark_default" not in ended.out


def test_a_misspelt_configured_table_is_reported_with_near_misses(configured: Any) -> None:
    _, findings = configured(tables=["shop.orders", "shop.ordrs", "shop.*", "!shop.tmp_*"])
    assert findings["tables"]["found"] == "1 exist" and findings["table shop.ordrs"]["state"] == "warn"
    assert findings["table shop.ordrs"]["remedy"].startswith("Did you mean 'shop.orders'?")


def test_the_source_check_receives_the_positions_of_its_tables(
    configured: Any, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str]
) -> None:
    questions: list[dict[str, Any]] = []

    def record_question(_: str, question: str, __: Any) -> str:
        questions.append(json.loads(question))
        return "[]"

    monkeypatch.setattr(launcher, "ask_source", record_question)
    source = {"type": "postgres", "slot": "s", "dsn": "host=127.0.0.1"}
    targets = [{"table": name, "key": ["id"]} for name in ("shop.orders", "shop.items", "shop.absent")]
    feeding = {"source": source, "targets": targets, "tables": []}
    FedTable(lake, "shop.items").ingest("2026-01-01T00:00:00+00:00")
    configured(**feeding)
    assert [*questions[0]["positions"]] == ["shop.items"] and questions[0]["spec"]["source"]["slot"] == "s"

    def unreadable(*_: Any) -> None:
        raise OSError("503 Slow Down")

    monkeypatch.setattr(source_findings, "read_positions", unreadable)
    configured(**feeding)
    assert questions[1]["positions"] is None


def test_an_unreachable_master_fails(configured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, "spark_default", conn_type="spark", host=f"spark://127.0.0.1:{free_port()}")
    code, findings = configured()
    assert code == 1 and "does not answer" in findings["spark connection"]["found"]
    connection(monkeypatch, "spark_default", conn_type="spark", host="yarn")
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert "HADOOP_CONF_DIR" in configured()[1]["spark connection"]["remedy"]


def test_unsupported_versions_of_java_and_spark_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("bin/java", "bin/spark-submit", "jars/spark-core_2.13-4.2.1.jar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\necho 'openjdk version \"25.0.1\"' >&2\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    finding = machine.java()
    assert finding.state == "fail" and "is Java 25" in finding.result and "17 to 23" in finding.result
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert machine.java().result == f"Cannot find java in {tmp_path}/gone."
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    states = {each.check: (each.state, each.result) for each in machine.spark(SparkTarget("local", False))}
    assert states["spark-submit"] == ("ok", f"{tmp_path}/bin/spark-submit")
    assert states["spark"][0] == "fail" and states["spark"][1].startswith("4.2.1;")
    assert {each.check: each.state for each in machine.spark(SparkTarget("local", False, "spark4-submit"))} == {
        "spark-submit": "fail",
        "pyspark": "ok",
    }


def test_jars_are_found_in_a_cache_or_a_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "MAVEN_CENTRAL", f"http://127.0.0.1:{free_port()}")
    jar = tmp_path / "org/example/driver/1.0/driver-1.0.jar"
    conf = {"spark.jars.ivy": str(tmp_path / "ivy")}
    with HTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        mirror = f"http://127.0.0.1:{server.server_port}/"
        finding = machine.jars([JAR], conf, mirror)
        assert finding.state == "warn" and JAR in finding.result and "repositories" in str(finding.remedy)
        jar.parent.mkdir(parents=True)
        jar.touch()
        finding = machine.jars([JAR], conf, mirror)
        assert finding.state == "ok" and "fetched by the first job" in finding.result
        server.shutdown()
    cached = tmp_path / "ivy/cache/org.example/driver/jars/driver-1.0.jar"
    cached.parent.mkdir(parents=True)
    cached.touch()
    assert machine.jars([JAR], conf, None).result == f"{JAR} in {tmp_path}/ivy"


def test_each_remedy_is_printed_below_its_finding(
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


def test_readers_determine_forms_and_unreadable_tables_are_named(configured: Any, lake: dict[str, str]) -> None:
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
    _, findings = configured(**parts)
    assert findings["readers of shop.orders"]["found"] == (
        "trino: Format version 2 with equality deletes, which all its readers can read."
    )
    # one line has the chosen form, the other the table's difference
    misfit = findings["readers of shop.items"]
    assert (misfit["state"], misfit["remedy"]) == ("warn", "Run the job set_readers.")
    assert misfit["found"] == "The table has format version 2, and Snowflake cannot read equality deletes."
    assert findings["readers"]["found"] == "1 tables fit their readers"
    # a history table has no deletes, so version 2 suffices for readers that need vectors elsewhere
    FedTable(lake, "shop.orders_log").ingest(None)
    many = {"table": "shop.{table}", "source_tables": ["x"], "history_table": "shop.{table}_log", "key": ["id"]}
    _, findings = configured(**files, targets=[{**many, "readers": ["databricks"]}])
    assert {name for name, each in findings.items() if name.startswith("readers of") and each["state"] == "warn"} == {
        "readers of shop.orders",
        "readers of shop.items",
    }
    code, findings = configured(**{**parts, "readers": ["athena", "databricks"]})
    assert code == 1 and "Amazon Athena and Databricks Runtime 18" in findings["configuration"]["found"]
    assert not [name for name in findings if name.startswith("readers")]


def test_readers_recorded_in_a_table_are_checked_without_configured_ones(configured: Any, lake: dict[str, str]) -> None:
    people = FedTable(lake, "shop.people")
    with people.table.transaction() as transaction:
        transaction.set_properties({names.READERS: "pyiceberg,databricks"})
    tables = ["shop.orders", "shop.people"]
    assert configured(tables=tables)[1]["readers"]["found"] == "1 tables fit their readers"
    people.ingest(None)
    people.delete(3, by_position=True)
    _, findings = configured(tables=tables)
    assert findings["readers of shop.people"]["found"].endswith("Databricks Runtime 18 cannot read position deletes.")
