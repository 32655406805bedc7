"""MariaDB as a local process: a row-based log, a restart, a crash, errors with a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local_services import mariadb
from local_services.mariadb import MariaDB
from local_services.paths import Account
from local_services.process import ServiceError

pytestmark = pytest.mark.services


def query(server: MariaDB, statement: str) -> list[Any]:
    """Run one statement and return its rows."""
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def test_it_logs_rows_and_survives_a_restart_and_a_crash(folder: Path) -> None:
    data = folder / "data"
    with MariaDB(data, keep_data=True) as server:
        variables = "log_bin, @@binlog_format, @@binlog_row_image, @@binlog_row_metadata, @@gtid_strict_mode"
        assert query(server, f"SELECT @@{variables}") == [(1, "ROW", "FULL", "FULL", 1)]
        query(server, "CREATE DATABASE shop")
        query(server, "CREATE TABLE shop.t (id int PRIMARY KEY)")
        query(server, "INSERT INTO shop.t VALUES (1)")
        kinds = {row[2] for row in query(server, "SHOW BINLOG EVENTS")}
        assert {"Gtid", "Table_map", "Write_rows_v1", "Xid"} <= kinds
    assert not server.running
    again = MariaDB(data, settings={"server-id": "7"}).start()
    try:
        assert query(again, "SELECT id, @@server_id FROM shop.t") == [(1, 7)]
        query(again, "INSERT INTO shop.t VALUES (2)")
        port = again.port
        again.stop(crash=True)
        again.start()
        assert again.port == port
        assert query(again, "SELECT count(*) FROM shop.t") == [(2,)]
    finally:
        again.stop()
    assert not data.exists(), "removed at the stop unless kept"


def test_a_starting_server_leaves_the_temporary_tables_of_others(folder: Path) -> None:
    with MariaDB(folder / "one") as one:
        left = one.scratch_dir / "#sql-temptable-1-2-3.MAI"
        left.touch()
        one.hand_over(left)
        with MariaDB(folder / "two") as two:
            assert left.exists()
            assert [query(server, "SELECT @@tmpdir") for server in (one, two)] == [
                [(str(server.scratch_dir),)] for server in (one, two)
            ]
    assert not list(folder.glob("*.tmp"))


def test_a_failed_start_reports_the_servers_error(folder: Path) -> None:
    with pytest.raises(ServiceError, match="PSYCHIC"):
        MariaDB(folder / "data", settings={"binlog-format": "PSYCHIC"}).start()


def test_a_closed_parent_folder_is_reported_with_a_remedy(folder: Path) -> None:
    parent = folder / "parent"
    parent.mkdir(mode=0o700)
    server = MariaDB(parent / "data")
    server.account = Account("stranger", 4711, 4711)
    with pytest.raises(ServiceError, match="chmod o\\+x .*parent"):
        server.start()


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mariadb, "_PLACES", "/nowhere")
    with pytest.raises(ServiceError, match="mariadbd is missing. Run python -m local_services.install"):
        mariadb.program_path("mariadbd")
