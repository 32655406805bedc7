"""A Postgres for the tests of this folder, and one test's slot and tables on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from lakecdc.contract.spec import JobSpec
from lakecdc.ingest.sources.postgres.log_server import PostgresServer
from local_services.postgres import Postgres
from tests.conftest import Lake
from tests.lakecdc.ingest.sources.model import LogShop
from tests.open_folder import open_folder


class Shop(LogShop):
    """One test's slot and tables on the shared server."""

    def __init__(self, server: Postgres, lake: Lake, number: int) -> None:
        super().__init__(lake, number)
        self.server = server

    @property
    def schema(self) -> str:
        """The schema of this test's tables; the slot has the same name."""
        return f"s{self.number}"

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run SQL at the source; ``s.`` is this test's schema."""
        with psycopg.connect(self.server.dsn, autocommit=True) as session:
            cursor = session.execute(statement.replace("s.", f"{self.schema}.").encode())
            return cursor.fetchall() if cursor.description else []

    def source(self) -> dict[str, Any]:
        return {"type": "postgres", "dsn": self.server.dsn, "slot": self.schema}

    def log_server(self, spec: JobSpec) -> PostgresServer:
        return PostgresServer(self.lake.spark, spec)


@pytest.fixture(scope="package")
def server() -> Iterator[Postgres]:
    """Start a Postgres cluster."""
    with open_folder() as folder, Postgres(folder / "data") as postgres:
        yield postgres


_numbers = itertools.count()


@pytest.fixture
def shop(server: Postgres, lake: Lake) -> Iterator[Shop]:
    """Create a fresh schema, slot and publication."""
    database = Shop(server, lake, next(_numbers))
    database.sql(f"CREATE SCHEMA {database.schema}")
    yield database
    database.sql(
        f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{database.schema}'"
    )
    database.sql(f"DROP PUBLICATION IF EXISTS {database.schema}")
