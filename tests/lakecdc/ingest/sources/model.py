"""A small model of the job's tables, and one test's tables on a server."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec, parse_spec
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.engine.log import LogRows
from lakecdc.ingest.job import ingest
from lakecdc.ingest.sources.log.server import LogServer
from lakecdc.ingest.sources.log.source import LogSource
from lakecdc.metadata.positions import Position, decode
from tests.conftest import Lake
from tests.lakecdc.ingest.by_spark import with_engine

Key = tuple[Any, ...]


class EventSource(LogSource[Any, Any]):
    """A source whose batches have every event as a row of Spark's."""

    def _fold(self, *arguments: Any) -> LogRows:
        with with_engine("spark"):
            return super()._fold(*arguments)


@dataclass
class Model:
    """The expected rows of tables fed by the job.

    :param tables: rows by key by table.
    :param positions: positions by table.
    :param batches: every batch applied, with its events as rows.
    """

    tables: dict[str, dict[Key, dict[str, Any]]] = field(default_factory=dict)
    positions: dict[str, Position | None] = field(default_factory=dict)
    batches: list[tuple[Batch, list[Any]]] = field(default_factory=list)
    types: dict[str, dict[str, str]] = field(default_factory=dict)

    def apply(self, batch: Batch) -> None:
        """Apply one batch, event by event in order."""
        name = batch.target.table
        rows = self.tables.setdefault(name, {})
        self.types[name] = {column.name: column.type for column in batch.columns}
        events = batch.rows.frame.orderBy("order").collect() if batch.rows is not None else []
        self.batches.append((batch, events))
        before = dict(rows)
        if batch.truncate_order:
            rows.clear()
            events = [event for event in events if event["order"] >= batch.truncate_order]
        for event in events:
            key = tuple(event["key"])
            assert event["order"] > max((row["_order"] for row in [rows.get(key)] if row), default="")
            if event["op"] == "d":
                before[key] = rows.pop(key, None) or before.get(key, {})
                continue
            row = event["row"].asDict(recursive=True)
            for column in event["open"] or ():
                row[column] = before.get(tuple(event["old_key"] or key), rows.get(key, {}))[column]
            rows[key] = before[key] = {**row, "_order": event["order"]}
        self.positions[name] = decode(batch.position.encode())

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return the rows of a table, sorted; with all columns by default."""
        rows = self.tables[table].values()
        return sorted(tuple(r[c] for c in columns or [k for k in r if k != "_order"]) for r in rows)


@dataclass
class LogShop(ABC):
    """One test's tables on a shared server, and its targets."""

    lake: Lake
    number: int
    model: Model = field(default_factory=Model)
    targets: list[dict[str, Any]] = field(default_factory=list)

    @property
    @abstractmethod
    def schema(self) -> str:
        """The schema of this test's tables."""

    @abstractmethod
    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run SQL at the source; ``s.`` is this test's schema."""

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """Return the source of a spec."""

    @abstractmethod
    def log_server(self, spec: JobSpec) -> LogServer[Any, Any]:
        """Return the server of a run."""

    def target(self, table: str, **rest: Any) -> str:
        """Add a target in this test's namespace; return its name in the catalog."""
        self.lake.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{self.schema}")
        self.targets.append({"table": f"{self.schema}.{table}", **rest})
        return f"{self.schema}.{table}"

    def spec(self, **source: Any) -> JobSpec:
        """Return the spec of this test; ``job`` and ``options`` among the settings are the job's."""
        document = {**self.source(), **source}
        job, options = document.pop("job", "ingest"), {"dry_run": document.pop("dry_run", False)}
        options |= document.pop("options", {})
        return parse_spec(self.lake.spec(job, source=document, target=self.targets, options=options))

    @property
    def positions(self) -> dict[str, Position | None]:
        """The targets' positions in the model."""
        return {t["table"]: self.model.positions.get(t["table"]) for t in self.targets}

    def open(self, **source: Any) -> EventSource:
        """Open a source for one run that delivers single events."""
        spec = self.spec(**source)
        return EventSource(self.lake.spark, spec, self.log_server(spec))

    def run(
        self, failing: str = "", rounds: int = 0, recorded: dict[str, Position] | None = None, **source: Any
    ) -> EventSource:
        """Run the job once.

        :param failing: a table that cannot be fed.
        :param rounds: stop after this many, like a killed run, before the last one is finished.
        :param recorded: ends of interrupted batches.
        """
        source_run = self.open(**source)
        try:
            source_run.start(self.positions, recorded or {})
            for number, batches in enumerate(source_run.rounds(), 1):
                for batch in batches:
                    if batch.target.table == failing:
                        source_run.failed(failing, RuntimeError("failed by the test"))
                    else:
                        self.model.apply(batch)
                        source_run.applied(batch.target.table, batch.position)
                if number == rounds:
                    break
                source_run.finish_round()
        finally:
            source_run.close()
        return source_run

    def start(self, **source: Any) -> dict[str, Exception]:
        """Start a run and end it; return the refused tables."""
        source_run = self.open(**source)
        try:
            source_run.start(self.positions, {})
            return dict(source_run.refused)
        finally:
            source_run.close()

    def quarantined(self, quarantine: str, table: str = "") -> list[tuple[str, str, dict[str, Any]]]:
        """Return rule, reason and event of all quarantined rows, or of one table's, in order."""
        quarantined = self.lake.duckdb_rows(quarantine, "order_key, target, rule, reason, raw_value")
        rows = sorted((row for row in quarantined if table in ("", row[1])), key=lambda row: row[0])
        return [(rule, reason, json.loads(bytes(raw))) for _order, _target, rule, reason, raw in rows]


def run(shop: LogShop, **source: Any) -> dict[str, TableReport]:
    """Run the job once; return the reports by table."""
    return {report.table: report for report in ingest(shop.lake.spark, shop.spec(**source))}


def differs(shop: LogShop, name: str, columns: str) -> list[Any]:
    """Return the rows that only the target, read by DuckDB, or only its source has."""
    source, target = shop.sql(f"SELECT {columns} FROM {name}"), shop.lake.duckdb_rows(name, columns)
    only = {"target": Counter(target) - Counter(source), "source": Counter(source) - Counter(target)}
    return sorted(((side, row) for side, rows in only.items() for row in rows.elements()), key=str)


def field_ids(shop: LogShop, name: str) -> dict[str, int]:
    """Return the field ids of the table's own columns."""
    fields = shop.lake.pyiceberg().load_table(name).schema().fields
    return {f.name: f.field_id for f in fields if not f.name.startswith("_")}


def move(shop: LogShop, name: str, **offsets: Any) -> None:
    """Change a table's position."""
    position = shop.model.positions[name]
    assert position is not None
    shop.model.positions[name] = replace(position, offsets={**position.offsets, **offsets})
