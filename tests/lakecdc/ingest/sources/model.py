"""A small model of what the job does with the batches of a source, and one test's tables on a server."""

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
from tests.lakecdc.ingest.by_spark import made_by

Key = tuple[Any, ...]


class EventSource(LogSource[Any, Any]):
    """A source whose batches have every event as a row of Spark's."""

    def _fold(self, *arguments: Any) -> LogRows:
        with made_by("spark"):
            return super()._fold(*arguments)


@dataclass
class Model:
    """What tables fed by the job would hold.

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
        """The rows of a table, sorted; all columns unless some are named."""
        found = self.tables[table].values()
        return sorted(tuple(r[c] for c in columns or [k for k in r if k != "_order"]) for r in found)


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
        """Where this test's tables are."""

    @abstractmethod
    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run SQL at the source; ``s.`` is this test's schema."""

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """The source of a spec."""

    @abstractmethod
    def log_server(self, spec: JobSpec) -> LogServer[Any, Any]:
        """The server of a run."""

    def target(self, table: str, **rest: Any) -> str:
        """Add a target, in a namespace of this test's; its name in the catalog."""
        self.lake.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{self.schema}")
        self.targets.append({"table": f"{self.schema}.{table}", **rest})
        return f"{self.schema}.{table}"

    def spec(self, **source: Any) -> JobSpec:
        """The spec of this test; ``job`` and ``options`` among the settings are the job's."""
        document = {**self.source(), **source}
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
        return EventSource(self.lake.spark, spec, self.log_server(spec))

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

    def start(self, **source: Any) -> dict[str, Exception]:
        """Start a run and end it; the refused tables."""
        found = self.open(**source)
        try:
            found.start(self.positions, {})
            return dict(found.refused)
        finally:
            found.close()

    def quarantined(self, quarantine: str, table: str = "") -> list[tuple[str, str, dict[str, Any]]]:
        """Rule, reason and event of all that a quarantine holds, or holds of one table, in order."""
        found = self.lake.duckdb_rows(quarantine, "order_key, target, rule, reason, raw_value")
        rows = sorted((row for row in found if table in ("", row[1])), key=lambda row: row[0])
        return [(rule, reason, json.loads(bytes(raw))) for _order, _target, rule, reason, raw in rows]


def run(shop: LogShop, **source: Any) -> dict[str, TableReport]:
    """One run of the job; the reports by table."""
    return {report.table: report for report in ingest(shop.lake.spark, shop.spec(**source))}


def differs(shop: LogShop, name: str, columns: str) -> list[Any]:
    """Rows that only the target, as DuckDB reads it, or only its source has."""
    source, target = shop.sql(f"SELECT {columns} FROM {name}"), shop.lake.duckdb_rows(name, columns)
    only = {"target": Counter(target) - Counter(source), "source": Counter(source) - Counter(target)}
    return sorted(((side, row) for side, rows in only.items() for row in rows.elements()), key=str)


def field_ids(shop: LogShop, name: str) -> dict[str, int]:
    """The table's own columns."""
    fields = shop.lake.pyiceberg().load_table(name).schema().fields
    return {f.name: f.field_id for f in fields if not f.name.startswith("_")}


def move(shop: LogShop, name: str, **offsets: Any) -> None:
    """Change a table's position."""
    position = shop.model.positions[name]
    assert position is not None
    shop.model.positions[name] = replace(position, offsets={**position.offsets, **offsets})
