"""A full load waits only briefly for locks, takes none without need, and leaves none behind."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from lakecdc.ingest.job import ingest
from lakecdc.ingest.sources.mysql import connect as connections
from lakecdc.ingest.sources.mysql import server as servers
from lakecdc.ingest.sources.mysql.connect import address, connect
from lakecdc.runtime import failpoints
from lakecdc.runtime.run import run as run_job
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.sources.model import run

from .conftest import Shop, both, only_mysql

pytestmark = pytest.mark.services


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections._SETTINGS, "lock_wait_timeout", "1")
    monkeypatch.setattr(connections, "_LOCK_ATTEMPTS", 2)


def tables(shop: Shop, *names: str) -> list[str]:
    """Create tables with one row each, and their targets."""
    for name in names:
        shop.sql(f"CREATE TABLE s.{name} (id int PRIMARY KEY, v int)", f"INSERT INTO s.{name} VALUES (1, 1)")
    return [shop.target(name) for name in names]


@only_mysql
@pytest.mark.usefixtures("short_waits")
def test_a_backup_lock_is_a_conflict(shop: Shop) -> None:
    (name,) = tables(shop, "t")
    with shop.server.connect() as backup, backup.cursor() as cursor:
        cursor.execute(f"LOCK TABLES {name} WRITE")
        report = run_job(shop.spec(), ingest)
        assert (report.failure_class, report.exit_code()) == ("conflict", 3), report.error
        assert "Lock wait timeout" in str(report.error) and "SHOW PROCESSLIST" in str(report.error)
    assert run(shop)[name].outcome == "done"


@pytest.mark.usefixtures("short_waits")
def test_a_locked_table_is_a_conflict_of_that_table_only(shop: Shop) -> None:
    good, bad = tables(shop, "good", "bad")
    with shop.server.connect() as other, other.cursor() as cursor:
        cursor.execute(f"LOCK TABLES {bad} WRITE")
        reports: Any = run(shop)
    assert (reports[good].outcome, reports[bad].outcome) == ("done", "conflict"), reports[bad].reason


@only_mysql
def test_a_silent_driver_loses_its_lock(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables(shop, "t")
    flag = tmp_path / "flag"
    monkeypatch.setattr(servers, "_LOCKED_IDLE_SECONDS", 1)
    act_at(monkeypatch, f"with_read_lock=pause:{flag}")
    ended: list[Exception] = []

    def driver() -> None:
        try:
            shop.start()
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=driver)
    thread.start()
    while not flag.exists():
        assert thread.is_alive()
    # the driver no longer answers
    shop.sql("INSERT INTO s.t VALUES (2, 2)")
    assert flag.exists()
    flag.unlink()
    thread.join()
    assert len(ended) == 1
    monkeypatch.delenv(failpoints.VARIABLE)


@only_mysql
@pytest.mark.parametrize("mode", [pytest.param("upsert", marks=pytest.mark.soak), "append"])
def test_a_dry_run_takes_no_lock(shop: Shop, mode: str) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY, v int)", "INSERT INTO s.t VALUES (1, 1)")
    shop.target("t", mode=mode)

    def flushes() -> int:
        ((_name, count),) = shop.sql("SHOW GLOBAL STATUS LIKE 'Com_flush'")
        return int(count)

    before = flushes()
    (report,) = run(shop, dry_run=True).values()
    assert (report.outcome, flushes()) == ("nothing", before)
    run(shop)
    assert flushes() > before


@both
def test_connections_notice_a_lost_peer(shop: Shop) -> None:
    tables(shop, "t")
    source: Any = shop.spec().source
    session = connect(address(source))
    try:
        for name, value in {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items():
            option = session._sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))  # type: ignore[attr-defined]
            assert option == value
        assert session._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)  # type: ignore[attr-defined]
    finally:
        session.close()


def test_a_dry_run_reads_and_moves_nothing(shop: Shop) -> None:
    shop.sql("CREATE TABLE s.t (id int PRIMARY KEY)", "INSERT INTO s.t VALUES (1)")
    name = shop.target("t")
    shop.run(rounds=1, dry_run=True)
    assert shop.model.rows(name) == [(1,)]
