"""A MariaDB and a MySQL for the tests of this folder, and one test's database on one of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.spec import JobSpec
from lakecdc.ingest.sources.mysql.log_server import MysqlServer
from local_services.mariadb import MariaDB
from local_services.mysql import MySQL
from local_services.mysql_protocol import MysqlProtocolServer
from tests.conftest import Lake
from tests.lakecdc.ingest.sources.model import LogShop
from tests.open_folder import open_folder

#: MySQL's form of MariaDB's sequence tables
_SEQUENCE = re.compile(r"\bseq_(\d+)_to_(\d+)\b")
_NUMBERS = "WITH RECURSIVE r (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n < 999) "

#: a test for both servers, on MySQL on demand; the others run on MariaDB
both = pytest.mark.parametrize("server", ["mariadb", pytest.param("mysql", marks=pytest.mark.soak)], indirect=True)
#: a test of what only MySQL does
only_mysql = pytest.mark.parametrize("server", ["mysql"], indirect=True)


class Shop(LogShop):
    """One test's database on a shared server."""

    def __init__(self, server: MysqlProtocolServer, lake: Lake, number: int) -> None:
        super().__init__(lake, number)
        self.server = server

    @property
    def schema(self) -> str:
        """The database of this test's tables."""
        return f"m{self.number}"

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in one session; return the rows of the last one. ``s.`` is this test's database."""
        with self.server.connect(database=self.schema) as session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(self._in_dialect(statement.replace("s.", f"{self.schema}.")))
            return list(cursor.fetchall())

    def _in_dialect(self, statement: str) -> str:
        """Translate a statement into the server's dialect."""
        if not isinstance(self.server, MySQL):
            return statement
        part = "(SELECT n + {0} AS seq FROM sequence.n WHERE n <= {1} - {0} ORDER BY n) AS n"
        return _SEQUENCE.sub(lambda match: part.format(*match.groups()), statement)

    def source(self) -> dict[str, Any]:
        return {"type": "mysql", "host": "127.0.0.1", "port": self.server.port, "user": "root"}

    def log_server(self, spec: JobSpec) -> MysqlServer:
        return MysqlServer(self.lake.spark, spec)


@pytest.fixture(scope="package")
def folder() -> Iterator[Path]:
    """Create a folder that any account may enter, unlike ``tmp_path``."""
    with open_folder() as path:
        yield path


@pytest.fixture(scope="package")
def mariadb(folder: Path) -> Iterator[MariaDB]:
    """Start a MariaDB server."""
    with MariaDB(folder / "mariadb") as server:
        yield server


@pytest.fixture(scope="package")
def mysql(folder: Path) -> Iterator[MySQL]:
    """Start a MySQL server with a table of numbers, which replaces MariaDB's sequences."""
    with MySQL(folder / "mysql") as server:
        with server.connect() as session, session.cursor() as cursor:
            cursor.execute("CREATE DATABASE sequence")
            cursor.execute("CREATE TABLE sequence.n (n int PRIMARY KEY)")
            cursor.execute(f"INSERT INTO sequence.n {_NUMBERS} SELECT a.n * 1000 + b.n FROM r a, r b WHERE a.n < 20")
        yield server


@pytest.fixture
def server(request: pytest.FixtureRequest) -> MysqlProtocolServer:
    """Return the server of a test: MariaDB, unless the test asks for another; see :data:`both`."""
    instance: MysqlProtocolServer = request.getfixturevalue(getattr(request, "param", "mariadb"))
    return instance


_counter = itertools.count()


@pytest.fixture
def shop(server: MysqlProtocolServer, lake: Lake) -> Shop:
    """Create a fresh database."""
    database = Shop(server, lake, next(_counter))
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database.schema}")
    return database
