"""A small model of what the job does with the batches of a source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lakecdc.ingest.batch import Batch
from lakecdc.ingest.engine.log import LogRows
from lakecdc.ingest.sources.log.source import LogSource
from lakecdc.metadata.positions import Position, decode
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
