"""A Postgres for the tests of this folder, and one test's slot and tables on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from lakecdc.contract.spec import JobSpec, parse_spec
from lakecdc.ingest.sources.postgres.log_server import PostgresServer
from lakecdc.metadata.positions import Position
from local_services.postgres import Postgres
from tests.conftest import Lake
from tests.lakecdc.ingest.sources.model import EventSource, Model
from tests.open_folder import open_folder


@dataclass
class Shop:
    """One test's slot and tables on the shared server."""

    server: Postgres
    lake: Lake
    number: int
    model: Model = field(default_factory=Model)
    targets: list[dict[str, Any]] = field(default_factory=list)

    @property
    def schema(self) -> str:
        """The schema of this test's tables; the slot has the same name."""
        return f"s{self.number}"

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run SQL at the source; ``s.`` is this test's schema."""
        with psycopg.connect(self.server.dsn, autocommit=True) as session:
            cursor = session.execute(statement.replace("s.", f"{self.schema}.").encode())
            return cursor.fetchall() if cursor.description else []

    def target(self, table: str, **rest: Any) -> str:
        """Add a target, in a namespace of this test's; its name in the catalog."""
        self.lake.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{self.schema}")
        self.targets.append({"table": f"{self.schema}.{table}", **rest})
        return f"{self.schema}.{table}"

    def spec(self, **source: Any) -> JobSpec:
        """The spec of this test; ``job`` and ``options`` among the settings are the job's."""
        document = {"type": "postgres", "dsn": self.server.dsn, "slot": self.schema, **source}
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
        return EventSource(self.lake.spark, spec, PostgresServer(self.lake.spark, spec))

    def run(
        self, failing: str = "", rounds: int = 0, recorded: dict[str, Position] | None = None, **source: Any
    ) -> EventSource:
        """One run of the job.

        :param failing: a table that cannot be fed.
        :param rounds: stop after so many, as a killed run would, without the last one's end.
        :param recorded: ends of interrupted batches.
        """
        found = self.open(**source)
        try:
            found.start(self.positions, recorded or {})
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
def server() -> Iterator[Postgres]:
    """A Postgres cluster."""
    with open_folder() as folder, Postgres(folder / "data") as found:
        yield found


_numbers = itertools.count()


@pytest.fixture
def shop(server: Postgres, lake: Lake) -> Iterator[Shop]:
    """A fresh schema, slot and publication."""
    found = Shop(server, lake, next(_numbers))
    found.sql(f"CREATE SCHEMA {found.schema}")
    yield found
    found.sql(
        f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{found.schema}'"
    )
    found.sql(f"DROP PUBLICATION IF EXISTS {found.schema}")
