"""What is refused before Spark is started, and what is left to the job."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakecdc.probes import preflight
from local_services.postgres import Postgres
from local_services.process import free_port
from tests.open_folder import open_folder

TARGET = {"table": "shop.orders", "key": ["id"]}


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server that asks one user for a password."""
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
    """Runs the check over a source; gives back the exit code and what was said."""

    def run(uri: str = f"sqlite:///{tmp_path}/catalog.db", **source: Any) -> tuple[int, str]:
        catalog = {"name": "lake", "properties": {"type": "sql", "uri": uri, "warehouse": f"file://{tmp_path}"}}
        spec = {"version": 1, "job": "ingest", "catalog": catalog, "source": source, "target": TARGET}
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(spec)))
        return preflight.main(), capsys.readouterr().out

    return run


class TestDatabases:
    """Both ways to read a Postgres database."""

    @pytest.mark.parametrize(
        ("user", "password", "database", "said"),
        [
            ("reader", "wrong", "postgres", "password authentication failed"),
            ("reader", "right", "nowhere", 'database "nowhere" does not exist'),
            ("nobody", "", "postgres", 'role "nobody" does not exist'),
            ("reader", "right", "postgres", ""),
        ],
    )
    @pytest.mark.parametrize("kind", ["postgres", "jdbc"])
    def test_a_refused_login(
        self,
        check: Any,
        server: Postgres,
        monkeypatch: pytest.MonkeyPatch,
        kind: str,
        user: str,
        password: str,
        database: str,
        said: str,
    ) -> None:
        monkeypatch.setenv("PASSWORD_OF_TEST", password)
        dsn = {"dsn": f"host=127.0.0.1 port={server.port} user={user} dbname={database}", "slot": "s"}
        url = {"url": f"jdbc:postgresql://127.0.0.1:{server.port}/{database}", "user": user, "cursor_column": "c"}
        given = {"postgres": dsn, "jdbc": url}[kind]
        code, text = check(type=kind, password={"env": "PASSWORD_OF_TEST"}, **given)
        assert code == (4 if said else 0) and said in text
        assert "right" not in text and "wrong" not in text

    def test_a_server_that_is_away_is_left_to_the_job(self, check: Any) -> None:
        port = free_port()
        assert check(type="postgres", dsn=f"host=127.0.0.1 port={port}", slot="s") == (0, "")
        assert check(type="mysql", host="127.0.0.1", port=port, user="u") == (0, "")
        assert check(type="jdbc", url=f"jdbc:mysql://127.0.0.1:{port}/s", cursor_column="c") == (0, "")

    def test_a_database_file(self, check: Any, tmp_path: Path) -> None:
        url = f"jdbc:sqlite:{tmp_path}/shop.db"
        code, text = check(type="jdbc", url=url, cursor_column="c")
        assert code == 4 and "does not exist" in text
        sqlite3.connect(tmp_path / "shop.db").close()
        assert check(type="jdbc", url=url, cursor_column="c") == (0, "")


@pytest.mark.parametrize("path", ["{}/gone", "{}/gone/*.jsonl", "file://{}/gone/a%20b.jsonl", "{}/gone/a{{b,c}}"])
def test_a_missing_folder(check: Any, tmp_path: Path, path: str) -> None:
    code, text = check(type="files", path=path.format(tmp_path), format="debezium-json")
    assert code == 4 and f"{tmp_path}/gone" in text


@pytest.mark.parametrize("path", ["{}", "{}/*.jsonl", "file://{}/x*", "s3://bucket/gone", "hdfs:///gone"])
def test_a_folder_that_is_there_or_elsewhere(check: Any, tmp_path: Path, path: str) -> None:
    assert check(type="files", path=path.format(tmp_path), format="debezium-json") == (0, "")


def test_a_path_of_another_file_system_is_left_to_the_job(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert check(type="files", path="/gone", format="debezium-json") == (0, "")


def test_the_catalogs_folder(check: Any, tmp_path: Path) -> None:
    code, text = check(f"sqlite:///{tmp_path}/gone/catalog.db", type="files", path=str(tmp_path), format="maxwell-json")
    assert code == 4 and "'lake'" in text and "/gone" in text


def test_a_spec_that_is_wrong_is_said(check: Any) -> None:
    code, text = check(type="postgres", dsn="host=x", slot="s", password={"env": "NOT_SET_ANYWHERE"})
    assert code == 4 and "NOT_SET_ANYWHERE" in text
