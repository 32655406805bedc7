"""Two tables of a real Postgres with concurrent writes: at any moment both equal their state at the source."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from local_services.postgres import Postgres
from tests.conftest import Lake
from tests.lakecdc.moments.support import restored

TABLES = {"orders": "id, total, notes", "order_lines": "order_id, line, amount"}
State = dict[str, list[tuple[Any, ...]]]


class Shop(threading.Thread):
    """Write orders and their lines, each in one transaction, and record the state between the transactions."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self.session, self.rng = psycopg.connect(dsn, autocommit=True), random.Random(1)
        self.states: list[tuple[datetime, State]] = []
        self.over = threading.Event()
        self.session.execute("CREATE TABLE orders (id bigint PRIMARY KEY, total int, notes text)")
        self.session.execute("ALTER TABLE orders ALTER notes SET STORAGE EXTERNAL")
        self.session.execute(
            "CREATE TABLE order_lines (order_id bigint REFERENCES orders ON UPDATE CASCADE, line int, amount int, "
            "PRIMARY KEY (order_id, line))"
        )
        for key in range(40):
            self.insert(key)

    def insert(self, key: int) -> None:
        amounts = [self.rng.randrange(100) for _ in range(self.rng.randrange(1, 4))]
        with self.session.transaction():
            self.session.execute(
                "INSERT INTO orders VALUES (%s, %s, repeat(md5(%s::text), 200))", (key, sum(amounts), key)
            )
            for line, amount in enumerate(amounts):
                self.session.execute("INSERT INTO order_lines VALUES (%s, %s, %s)", (key, line, amount))

    def change(self, number: int) -> None:
        """Change an order with its lines: insert, new total, new key, or delete."""
        key, choice = self.rng.randrange(40), self.rng.random()
        if choice < 0.3:
            self.insert(1000 + number)
        elif choice < 0.7:
            with self.session.transaction():
                self.session.execute("UPDATE order_lines SET amount = amount + 1 WHERE order_id = %s", (key,))
                self.session.execute("UPDATE orders SET total = total + 1 WHERE id = %s", (key,))
        elif choice < 0.8:
            self.session.execute("UPDATE orders SET id = %s WHERE id = %s", (2000 + number, key))
        else:
            with self.session.transaction():
                self.session.execute("DELETE FROM order_lines WHERE order_id = %s", (key,))
                self.session.execute("DELETE FROM orders WHERE id = %s", (key,))

    def run(self) -> None:
        """Write until stopped."""
        number = 0
        while not self.over.wait(0.1):
            number += 1
            self.change(number)
            self.remember()

    def remember(self) -> None:
        state = {
            table: self.session.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2").fetchall()
            for table, columns in TABLES.items()
        }
        row = self.session.execute("SELECT clock_timestamp()").fetchone()
        assert row
        self.states.append((row[0].astimezone(UTC), state))


@pytest.fixture
def shop() -> Iterator[tuple[Shop, str]]:
    """Start a server with the shop, before its first write."""
    folder = Path(tempfile.mkdtemp(prefix="lakecdc-moments-"))
    folder.chmod(0o755)
    try:
        with Postgres(folder / "data") as server:
            yield Shop(server.dsn), server.dsn
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_no_line_is_without_its_order_at_any_moment(lake: Lake, shop: tuple[Shop, str]) -> None:
    at_work, dsn = shop
    names = {table: lake.new_name(table) for table in TABLES}
    source = {"type": "postgres", "dsn": dsn, "slot": "moments"}
    targets = [
        {"table": name, "source_table": f"public.{table}", "history_table": f"{name}_history"}
        for table, name in names.items()
    ]
    spec = parse_spec(lake.spec("ingest", source=source, target=targets))

    def feed() -> None:
        report = run(spec, ingest)
        assert not report.error and {each.outcome for each in report.tables} <= {"done", "nothing"}, report

    feed()
    at_work.start()
    feed()
    begun = len(at_work.states)
    feed()
    at_work.over.set()
    at_work.join()
    feed()
    known = at_work.states[begun:-1]
    for moment, state in random.Random(2).sample(known, 1):
        reports = restored(lake, *names.values(), moment=moment.isoformat())
        assert [report.outcome for report in reports] == ["done", "done"], reports
        for (table, name), report in zip(names.items(), reports, strict=True):
            rows = lake.duckdb_rows(name, TABLES[table], report.metrics["branch"])
            assert sorted(rows) == sorted(state[table])
