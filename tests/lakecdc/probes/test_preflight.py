"""Refusals before Spark is started, and cases that are left to the job."""

from __future__ import annotations

import io
import json
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakecdc.metadata.source_state import SourceState
from lakecdc.probes import preflight
from local_services.postgres import Postgres
from local_services.process import free_port
from tests.open_folder import open_folder

TARGET = {"table": "shop.orders", "key": ["id"]}


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """Start a server that requires a password from one user."""
    with (
        open_folder() as folder,
        Postgres(folder / "data") as started,
        psycopg.connect(started.dsn, autocommit=True) as session,
    ):
        session.execute("CREATE ROLE reader LOGIN PASSWORD 'right'")
        rules = started.data_dir / "pg_hba.conf"
        rules.write_text(f"host all reader all scram-sha-256\n{rules.read_text()}")
        session.execute("SELECT pg_reload_conf()")
        yield started


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that checks a source and returns the class and message of its refusal."""

    def run(
        uri: str = f"sqlite:///{tmp_path}/catalog.db", positions: dict[str, str] | None = None, **source: Any
    ) -> tuple[str | None, str]:
        catalog = {"name": "lake", "properties": {"type": "sql", "uri": uri, "warehouse": f"file://{tmp_path}"}}
        spec = {"version": 1, "job": "ingest", "catalog": catalog, "source": source, "target": TARGET}
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"spec": spec, "positions": positions})))
        assert preflight.main() == 0
        state = SourceState.from_json(capsys.readouterr().out)
        return state.failure_class, state.refusal or ""

    return run


class TestDatabases:
    """Both ways to read a Postgres database."""

    @pytest.mark.parametrize(
        ("login", "said"),
        [
            (("reader", "wrong", "postgres"), "password authentication failed"),
            (("reader", "right", "nowhere"), 'database "nowhere" does not exist'),
            (("nobody", "", "postgres"), 'role "nobody" does not exist'),
            (("reader", "right", "postgres"), ""),
        ],
    )
    @pytest.mark.parametrize("kind", ["postgres", "jdbc"])
    def test_a_rejected_login_is_refused(
        self, check: Any, server: Postgres, monkeypatch: pytest.MonkeyPatch, kind: str, login: Any, said: str
    ) -> None:
        user, password, database = login
        monkeypatch.setenv("PASSWORD_OF_TEST", password)
        dsn = {"dsn": f"host=127.0.0.1 port={server.port} user={user} dbname={database}", "slot": "s"}
        url = {"url": f"jdbc:postgresql://127.0.0.1:{server.port}/{database}", "user": user, "cursor_column": "c"}
        given = {"postgres": dsn, "jdbc": url}[kind]
        code, text = check(type=kind, password={"env": "PASSWORD_OF_TEST"}, **given)
        assert code == ("bad input" if said else None) and said in text
        assert "right" not in text and "wrong" not in text

    @pytest.mark.parametrize(
        "source",
        [
            {"type": "postgres", "dsn": "host=127.0.0.1 port={}", "slot": "s"},
            {"type": "mysql", "host": "127.0.0.1", "user": "u", "port": "{}"},
            {"type": "jdbc", "url": "jdbc:mysql://127.0.0.1:{}/s", "cursor_column": "c"},
            {"type": "jdbc", "url": "jdbc:postgresql://127.0.0.1:{}/s", "cursor_column": "c"},
        ],
        ids=lambda source: source["type"],
    )
    def test_an_unreachable_server_is_named(self, check: Any, source: dict[str, Any]) -> None:
        port = free_port()
        given = {name: value.format(port) for name, value in source.items()}
        code, text = check(**{**given, "port": port} if "port" in given else given)
        assert code == "cluster" and f"127.0.0.1:{port}" in text

    def test_a_server_supported_only_by_the_jdbc_driver_is_left_to_the_job(self, check: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            threading.Thread(target=lambda: listening.accept()[0].close(), daemon=True).start()
            url = f"jdbc:postgresql://127.0.0.1:{listening.getsockname()[1]}/s"
            assert check(type="jdbc", url=url, cursor_column="c") == (None, "")

    def test_a_missing_database_file_is_refused(self, check: Any, tmp_path: Path) -> None:
        url = f"jdbc:sqlite:{tmp_path}/shop.db"
        code, text = check(type="jdbc", url=url, cursor_column="c")
        assert code == "bad input" and "does not exist" in text
        sqlite3.connect(tmp_path / "shop.db").close()
        assert check(type="jdbc", url=url, cursor_column="c") == (None, "")


@pytest.mark.parametrize("path", ["{}/gone", "{}/gone/*.jsonl", "file://{}/gone/a%20b.jsonl", "{}/gone/a{{b,c}}"])
def test_a_missing_folder_is_refused(check: Any, tmp_path: Path, path: str) -> None:
    code, text = check(type="files", path=path.format(tmp_path), format="debezium-json")
    assert code == "bad input" and f"{tmp_path}/gone" in text


@pytest.mark.parametrize("path", ["{}", "{}/*.jsonl", "file://{}/x*", "s3://bucket/gone", "hdfs:///gone"])
def test_an_existing_or_remote_folder_is_accepted(check: Any, tmp_path: Path, path: str) -> None:
    assert check(type="files", path=path.format(tmp_path), format="debezium-json") == (None, "")


def test_a_path_in_another_file_system_is_left_to_the_job(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert check(type="files", path="/gone", format="debezium-json") == (None, "")


def test_a_missing_catalog_folder_is_refused(check: Any, tmp_path: Path) -> None:
    code, text = check(f"sqlite:///{tmp_path}/gone/catalog.db", type="files", path=str(tmp_path), format="maxwell-json")
    assert code == "bad input" and "'lake'" in text and "/gone" in text


def test_a_wrong_spec_is_reported(check: Any) -> None:
    code, text = check(type="postgres", dsn="host=x", slot="s", password={"env": "NOT_SET_ANYWHERE"})
    assert code == "bad input" and "NOT_SET_ANYWHERE" in text
