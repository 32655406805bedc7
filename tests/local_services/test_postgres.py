"""Postgres as a local process: it starts, decodes, survives a restart, and explains an unusable folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import psycopg
import pytest

from local_services import postgres as postgres_module
from local_services.paths import Account, first_closed_folder, reachable_folder, unprivileged_account
from local_services.postgres import Postgres, installed_binaries
from local_services.process import ServiceError, free_port

PEEK = (
    "SELECT count(*) FROM pg_logical_slot_peek_binary_changes"
    "('s', null, null, 'proto_version', '1', 'publication_names', 'p')"
)


def query(server: Postgres, statement: str) -> list[tuple[object, ...]]:
    """Run one statement and return its rows."""
    with psycopg.connect(server.dsn, autocommit=True) as session:
        cursor = session.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_a_slot_sees_a_commit_at_once_and_survives_a_restart(folder: Path) -> None:
    data = folder / "data"
    with Postgres(data, keep_data=True) as server:
        assert query(server, "SHOW wal_level") == [("logical",)]
        assert query(server, "SHOW synchronous_commit") == [("on",)]
        query(server, "CREATE TABLE t (id int PRIMARY KEY, v text)")
        query(server, "CREATE PUBLICATION p FOR ALL TABLES")
        query(server, "SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        query(server, "INSERT INTO t VALUES (1, 'a')")
        assert query(server, "SELECT count(*) FROM pg_replication_slots") == [(1,)]
        first_port = server.port
    assert not server.running
    with Postgres(data) as again:
        assert query(again, "SELECT v FROM t") == [("a",)]
        assert query(again, PEEK) == [(4,)], "begin, relation, insert, commit"
        assert again.uri.endswith(f":{again.port}/postgres")
    assert first_port
    assert not data.exists(), "removed at the stop unless kept"


def test_it_recovers_after_a_crash_on_the_same_port(folder: Path) -> None:
    server = Postgres(folder / "data", settings={"max_connections": "20"}).start()
    try:
        query(server, "CREATE TABLE t AS SELECT 1 AS id")
        port = server.port
        server.stop(crash=True)
        server.start()
        assert server.port == port
        assert query(server, "SELECT id FROM t") == [(1,)]
        assert query(server, "SHOW max_connections") == [("20",)]
    finally:
        server.stop()


def test_a_failed_start_reports_the_servers_error(folder: Path) -> None:
    server = Postgres(folder / "data", settings={"wal_level": "psychic"})
    with pytest.raises(ServiceError, match="psychic"):
        server.start()


def test_a_port_in_use_is_named(folder: Path) -> None:
    with Postgres(folder / "one") as first, pytest.raises(ServiceError, match=f"port {first.port} is in use"):
        Postgres(folder / "two", port=first.port).start()


@pytest.mark.parametrize("closed", [True, False])
def test_a_closed_parent_folder_is_recognized(folder: Path, closed: bool) -> None:
    stranger = Account("stranger", 4711, 4711)
    parent = folder / "parent"
    parent.mkdir()
    parent.chmod(0o700 if closed else 0o755)
    assert first_closed_folder(parent / "data", stranger) == (parent.resolve() if closed else None)


def test_a_closed_parent_folder_is_reported_with_a_remedy(folder: Path) -> None:
    parent = folder / "parent"
    parent.mkdir(mode=0o700)
    server = Postgres(parent / "data")
    server.account = Account("stranger", 4711, 4711)
    with pytest.raises(ServiceError, match="chmod o\\+x .*parent"):
        server.start()


def test_a_closed_folder_is_replaced_by_a_reachable_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("local_services.paths.unprivileged_account", lambda: Account("stranger", 4711, 4711))
    assert reachable_folder(folder / "a" / "b", "lakecdc-") == folder / "a" / "b"
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    other = reachable_folder(closed, "lakecdc-test-")
    assert other != closed
    other.rmdir()


def test_programs_are_copied_out_of_a_closed_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy programs out of a virtual environment below /root, which is closed to the server's account."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(postgres_module, "first_closed_folder", lambda path, account: Path("/root"))
    programs = installed_binaries(Account("stranger", 4711, 4711))
    assert programs.is_relative_to(folder)
    assert os.access(programs / "initdb", os.X_OK)
    assert installed_binaries(Account("stranger", 4711, 4711)) == programs
    monkeypatch.undo()
    server = Postgres(folder / "data")
    monkeypatch.setattr(postgres_module, "installed_binaries", lambda account: programs)
    with server:
        assert query(server, "SELECT 1") == [(1,)]


def test_the_account_is_changed_only_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unprivileged_account() is None
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    account = unprivileged_account()
    assert account is not None
    assert account.uid > 0


def test_free_ports_differ() -> None:
    assert free_port() > 1024
