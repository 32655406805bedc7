"""Feed tables from files of events, and compute the expected rows."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.contract.target import Target
from lakecdc.ingest.apply.events import measure
from lakecdc.ingest.apply.history_table import open_history
from lakecdc.ingest.apply.modes import apply_rows
from lakecdc.ingest.apply.publish import following
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.change import Column, Rows
from lakecdc.ingest.floor import held_against
from lakecdc.ingest.job import ingest
from lakecdc.ingest.tables import prepare
from lakecdc.metadata.positions import Position, nearest_carrier
from lakecdc.runtime.run import run
from tests.conftest import Lake
from tests.lakecdc.ingest.histories import PLACEHOLDER, History, lines

Events = list[dict[str, Any]]
COLUMNS = "id, name, n, doc"
EVENT_COLUMNS = f"_lakecdc_op, {COLUMNS}, _lakecdc_unchanged, _lakecdc_old_key"


class PlainHistory(History):
    """Events that need no earlier event: whole images and no key changes, so they may arrive in any order."""

    def statement(self, keys: int) -> None:
        key = self.rng.randrange(keys)
        if key not in self.rows:
            self.insert(key)
        elif self.rng.random() < 0.3:
            self.delete(key)
        else:
            self.update(key, touch_doc=True)


class Loads:
    """Full loads of a table with a history table, as a database source makes them."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        name = lake.new_name("load")
        self.target = Target(name, ("id",), history_table=f"{name}_history")
        self.log = f"{name}_history"

    def batch(self, place: int, rows: dict[int, str], *, full_load: bool = True) -> Batch:
        op = "r" if full_load else "u"
        values = ", ".join(f"({key}L, '{value}')" for key, value in rows.items())
        changes = self.lake.spark.sql(
            f"SELECT '{op}' op, struct(id) key, struct(id, v) row, CAST(NULL AS array<string>) open, "
            f"CAST(NULL AS struct<id: bigint>) old_key, '{place:04d}' order, current_timestamp() source_time "
            f"FROM VALUES {values} AS t(id, v)"
        )
        columns = (Column("id", "bigint", True), Column("v", "string"))
        position = Position("test", "one", {"place": place})
        return Batch(self.target, ("id",), columns, Rows(changes), position, full_load=full_load)

    def feed(self, batch: Batch, *, interrupted: bool = False) -> None:
        """Run one batch.

        :param interrupted: end between its commits to the history table and to the table.
        """
        table = None
        if self.lake.spark.catalog.tableExists(f"lake.{self.target.table}"):
            table = self.lake.table(self.target.table)
        batch = held_against(batch, table)
        carrier = nearest_carrier((s.id, s.summary) for s in table.ancestors()) if table else None
        history = open_history(self.lake.spark, "lake", self.target, table, carrier)
        assert history
        table, _ = prepare(self.lake.spark, "lake", table, batch)
        if interrupted:
            history.append(batch, table, carrier)
            return
        measured = None if batch.full_load else measure(batch)
        commit = replace(batch.commit, enter_history=partial(history.append, batch, table, carrier))
        frame = batch.rows.frame.select("key", "op", "row", "order", "source_time")  # type: ignore[union-attr]
        batch = replace(batch, rows=Rows(frame, folded=True, keys=10), commit=commit)
        position = following(batch.position, None, measured.high_order if measured else None)
        apply_rows("upsert", table, batch, position, carrier.text if carrier else None)

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self.lake.duckdb_rows(self.log, "_lakecdc_op, id, v, _lakecdc_order"))


@dataclass
class Feed:
    """Files of events and the target they feed.

    :param target: settings of the target besides table and key.
    """

    lake: Lake
    folder: Path
    target: dict[str, Any]
    table: str = ""
    files: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table = self.table or self.lake.new_name("mode")

    @property
    def spec(self) -> dict[str, Any]:
        source = {"type": "files", "path": f"{self.folder}/*.jsonl", "format": "debezium-json", "records": "kafka"}
        own = {} if "source_tables" in self.target else {"source_table": "t"}
        target = {"table": self.table, "key": ["id"], **own, **self.target}
        return self.lake.spec("ingest", source=source, target=target, options=self.options)

    def write(self, events: Events) -> None:
        """Write one more file."""
        (self.folder / f"{self.files:04d}.jsonl").write_text(lines(events))
        self.files += 1

    def run(self) -> TableReport:
        report = run(parse_spec(self.spec), ingest)
        assert not report.error, report.error
        return report.tables[0]

    def take(self, events: Events) -> TableReport:
        """Write one more file and run; the run must succeed."""
        self.write(events)
        report = self.run()
        assert report.outcome == "done", report.reason
        return report

    def rows(self, table: str = "", columns: str = COLUMNS) -> list[tuple[Any, ...]]:
        """Return the rows that DuckDB reads."""
        return sorted(self.lake.duckdb_rows(table or self.table, columns), key=str)


def in_batches(history: History, *cuts: int) -> list[Events]:
    """Cut the events into batches, in order; the two events of a key change stay together."""
    moved = {i for i, event in enumerate(history.events) if event["headers"]}
    places = [0, *(cut + (cut in moved) for cut in cuts), len(history.events)]
    return [history.events[low:high] for low, high in itertools.pairwise(places)]


def scattered(history: History, seed: int, batches: int) -> list[Events]:
    """Shuffle the events over some batches, a third of them twice."""
    rng = random.Random(seed)
    events = history.events + rng.sample(history.events, len(history.events) // 3)
    rng.shuffle(events)
    size = -(-len(events) // batches)
    return [events[i : i + size] for i in range(0, len(events), size)]


def final_rows(history: History) -> list[tuple[Any, ...]]:
    """Return the rows of the source."""
    return sorted(history.expected(), key=str)


def event_rows(events: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the expected rows of the change log."""
    return sorted((_event_row(event) for event in events), key=str)


def _event_row(event: dict[str, Any]) -> tuple[Any, ...]:
    op, after = event["value"]["op"], event["value"]["after"]
    if op == "d":
        return ("d", event["key"]["id"], None, None, None, None, None)
    unchanged = [name for name, value in after.items() if value == PLACEHOLDER]
    values = (None if name in unchanged else after[name] for name in ("id", "name", "n", "doc"))
    old_key = json.dumps(json.loads(event["headers"][0][1]), separators=(",", ":")) if event["headers"] else None
    return (op, *values, unchanged or None, old_key)


def truncate(history: History) -> dict[str, Any]:
    """Record a TRUNCATE at the source."""
    history.rows.clear()
    history.lsn += 10
    sequence = json.dumps([str(history.lsn), str(history.lsn)])
    source = {**history.events[-1]["value"]["source"], "lsn": history.lsn, "sequence": sequence}
    value = {"op": "t", "before": None, "after": None, "source": source}
    offset = len(history.events)
    event = {**history.events[-1], "offset": offset, "key": None, "value": value, "headers": []}
    history.events.append(event)
    return event
