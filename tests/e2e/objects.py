"""A catalog of type ``object_store``, and jobs on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.hooks.connections import SecretEnvironment
from lakecdc.contract.spec import parse_spec
from lakecdc.runtime.run import run, work_of
from tests.lakecdc.ingest.histories import History, lines

TABLE = "shop.t"
COLUMNS = "id, name, n, doc"


class Objects:
    """A catalog of tables with readable paths.

    :param name: name of the catalog, which Spark opens once.
    :param folder: folder of the event files, and of the warehouse unless ``properties`` place it elsewhere.
    :param properties: additional properties of the catalog.
    """

    def __init__(self, name: str, folder: Path, **properties: str) -> None:
        self.name, self.folder = name, folder
        self.properties = {
            "type": "object_store",
            "warehouse": f"file://{folder}/lake",
            "readable_paths": "true",
            **properties,
        }
        #: references to secrets by property, which specs contain instead of values
        self.secrets: dict[str, dict[str, str]] = {}
        # number of fed events of each table's history
        self._fed: dict[str, int] = {}

    def connection(self) -> CatalogConnection:
        """Return the catalog as workers open it."""
        return CatalogConnection(self.name, dict(self.properties), self.properties, SecretEnvironment(self.name))

    def spec(self, job: str, **parts: Any) -> dict[str, Any]:
        """Return a spec of a job."""
        catalog = {"name": self.name, "properties": {**self.properties, **self.secrets}}
        return {"version": 1, "job": job, "catalog": catalog, **parts}

    def run(self, job: str, **parts: Any) -> dict[str, Any]:
        """Run a job, which must have work, and return its metrics."""
        report = run(parse_spec(self.spec(job, **parts), job), work_of(job))
        assert not report.error and [table.outcome for table in report.tables] == ["done"], report
        return dict(report.tables[0].metrics)

    def feed(self, history: History, table: str = TABLE, **target: Any) -> None:
        """Ingest a history's events since the last call."""
        folder, done = self.folder / table, self._fed.get(table, 0)
        folder.mkdir(exist_ok=True)
        (folder / f"{done}.jsonl").write_text(lines(history.events[done:]))
        self._fed[table] = len(history.events)
        source = {"type": "files", "path": f"{folder}/*.jsonl", "format": "debezium-json", "records": "kafka"}
        self.run("ingest", source=source, target={"table": table, "key": ["id"], "source_table": "shop.t", **target})
