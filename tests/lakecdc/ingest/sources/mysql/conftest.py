"""A MariaDB and a MySQL for the tests of this folder, and one test's database on one of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.spec import JobSpec, parse_spec
from lakecdc.ingest.sources.mysql.log_server import MysqlServer
from lakecdc.metadata.positions import Position
from local_services.mariadb import MariaDB
from local_services.mysql import MySQL
from local_services.mysql_protocol import MysqlProtocolServer
from tests.conftest import Lake
from tests.lakecdc.ingest.sources.model import EventSource, Model
from tests.open_folder import open_folder

#: what MariaDB's tables of this kind become at MySQL
_SEQUENCE = re.compile(r"\bseq_(\d+)_to_(\d+)\b")
_NUMBERS = "WITH RECURSIVE r (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n < 999) "

#: a test for both servers, on MySQL on demand; the others run on MariaDB
both = pytest.mark.parametrize("server", ["mariadb", pytest.param("mysql", marks=pytest.mark.soak)], indirect=True)
#: a test of what only MySQL does
only_mysql = pytest.mark.parametrize("server", ["mysql"], indirect=True)


@dataclass
class Shop:
    """One test's database on a shared server."""

    server: MysqlProtocolServer
    lake: Lake
    number: int
    model: Model = field(default_factory=Model)
    targets: list[dict[str, Any]] = field(default_factory=list)
    recorded: dict[str, Position] = field(default_factory=dict)

    @property
    def schema(self) -> str:
        """The database of this test's tables."""
        return f"m{self.number}"

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements at the source in one session; the rows of the last one. ``s.`` is this test's database."""
        with self.server.connect(database=self.schema) as session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(self._spoken(statement.replace("s.", f"{self.schema}.")))
            return list(cursor.fetchall())

    def _spoken(self, statement: str) -> str:
        """The statement as the server takes it."""
        if not isinstance(self.server, MySQL):
            return statement
        part = "(SELECT n + {0} AS seq FROM sequence.n WHERE n <= {1} - {0} ORDER BY n) AS n"
        return _SEQUENCE.sub(lambda found: part.format(*found.groups()), statement)

    def target(self, table: str, **rest: Any) -> str:
        """Add a target, in a namespace of this test's; its name in the catalog."""
        self.lake.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{self.schema}")
        self.targets.append({"table": f"{self.schema}.{table}", **rest})
        return f"{self.schema}.{table}"

    def spec(self, **source: Any) -> JobSpec:
        """The spec of this test; ``job`` and ``options`` among the settings are the job's."""
        login = {"host": "127.0.0.1", "port": self.server.port, "user": "root"}
        document = {"type": "mysql", **login, **source}
        job, options = document.pop("job", "ingest"), {"dry_run": document.pop("dry_run", False)}
        options |= document.pop("options", {})
        return parse_spec(self.lake.spec(job, source=document, target=self.targets, options=options))

    @property
    def positions(self) -> dict[str, Position | None]:
        """Where the targets stand in the model."""
        return {t["table"]: self.model.positions.get(t["table"]) for t in self.targets}

    def open(self, **source: Any) -> EventSource:
        """A source for one run, whose events arrive one by one."""
        spec = self.spec(**source)
        return EventSource(self.lake.spark, spec, MysqlServer(self.lake.spark, spec))

    def start(self, **source: Any) -> dict[str, Exception]:
        """Start a run and end it; the refused tables."""
        found = self.open(**source)
        try:
            found.start(self.positions, self.recorded)
            return dict(found.refused)
        finally:
            found.close()

    def run(self, failing: str = "", rounds: int = 0, **source: Any) -> EventSource:
        """One run of the job.

        :param failing: a table that cannot be fed.
        :param rounds: stop after so many, as a killed run would, without the last one's end.
        """
        found = self.open(**source)
        try:
            found.start(self.positions, self.recorded)
            for number, batches in enumerate(found.rounds(), 1):
                for batch in batches:
                    if batch.target.table == failing:
                        found.failed(failing, RuntimeError("told to"))
                    else:
                        self.model.apply(batch)
                        found.applied(batch.target.table, batch.position)
                if number == rounds:
                    break
                found.finish_round()
        finally:
            found.close()
        return found


@pytest.fixture(scope="package")
def folder() -> Iterator[Path]:
    """A folder that any account may enter, which ``tmp_path`` is not."""
    with open_folder() as found:
        yield found


@pytest.fixture(scope="package")
def mariadb(folder: Path) -> Iterator[MariaDB]:
    """A MariaDB server."""
    with MariaDB(folder / "mariadb") as found:
        yield found


@pytest.fixture(scope="package")
def mysql(folder: Path) -> Iterator[MySQL]:
    """A MySQL server, with numbers where MariaDB has sequences."""
    with MySQL(folder / "mysql") as found:
        with found.connect() as session, session.cursor() as cursor:
            cursor.execute("CREATE DATABASE sequence")
            cursor.execute("CREATE TABLE sequence.n (n int PRIMARY KEY)")
            cursor.execute(f"INSERT INTO sequence.n {_NUMBERS} SELECT a.n * 1000 + b.n FROM r a, r b WHERE a.n < 20")
        yield found


@pytest.fixture
def server(request: pytest.FixtureRequest) -> MysqlProtocolServer:
    """The server of a test: MariaDB, unless it asks for another; see :data:`both`."""
    found: MysqlProtocolServer = request.getfixturevalue(getattr(request, "param", "mariadb"))
    return found


_counter = itertools.count()


@pytest.fixture
def shop(server: MysqlProtocolServer, lake: Lake) -> Shop:
    """A fresh database."""
    found = Shop(server, lake, next(_counter))
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {found.schema}")
    return found
