"""A Postgres and a SQLite database as sources."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from local_services.postgres import Postgres
from tests.conftest import Lake


class Fed:
    """One source table and the table it feeds.

    :param url: of the database.
    """

    def __init__(self, lake: Lake, url: str, source_table: str, **source: Any) -> None:
        self.lake, self.name = lake, lake.new_name("jdbc")
        self.quarantine = lake.new_name("quarantine")
        self.source: dict[str, Any] = {"type": "jdbc", "url": url, **source}
        self.target: dict[str, Any] = {"table": self.name, "source_table": source_table}

    def spec(self, start: str | None = None, end: str | None = None, **source: Any) -> dict[str, Any]:
        """Return the spec document."""
        interval = {"interval": {"start": start, "end": end}} if start else {}
        options = {"quarantine_table": self.quarantine}
        return self.lake.spec(
            "ingest", source={**self.source, **interval, **source}, target=self.target, options=options
        )

    def run(self, *interval: str, outcome: str = "done", **source: Any) -> TableReport:
        """Run the job and return the table's report."""
        report = run(parse_spec(self.spec(*interval, **source)), ingest)
        assert not report.error, report.error
        assert report.tables[0].outcome == outcome, report.tables[0].reason
        return report.tables[0]

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        """Return the rows that DuckDB reads, sorted."""
        return sorted(self.lake.duckdb_rows(self.name, columns), key=str)


class Shop(Fed):
    """A table in Postgres."""

    def __init__(self, lake: Lake, server: Postgres, table: str, **source: Any) -> None:
        url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
        super().__init__(lake, url, f"public.{table}", user="postgres", **source)
        self.server = server

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run SQL at the source and return its rows."""
        with psycopg.connect(self.server.dsn, autocommit=True) as session:
            cursor = session.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="package")
def server() -> Iterator[Postgres]:
    """Start a Postgres cluster."""
    with tempfile.TemporaryDirectory(prefix="lakecdc-test-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with Postgres(Path(folder) / "data") as postgres:
            yield postgres


@pytest.fixture
def orders(lake: Lake, server: Postgres) -> Shop:
    """Create orders with a primary key and the time of their last change."""
    shop = Shop(lake, server, "Or ders", cursor_column='changed "at"')
    shop.sql('DROP TABLE IF EXISTS "Or ders"')
    shop.sql(
        'CREATE TABLE "Or ders" (part int, "Id" bigint, state text, price numeric(10,2), "changed ""at""" timestamptz,'
        ' PRIMARY KEY ("Id", part) INCLUDE (state))'
    )
    return shop


@pytest.fixture
def books(lake: Lake, tmp_path: Path) -> tuple[Fed, sqlite3.Connection]:
    """Create books in SQLite with a version that rises."""
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute("CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT, version INTEGER)")
    return Fed(lake, f"jdbc:sqlite:{tmp_path}/shop.db", "books", cursor_column="version"), connection
