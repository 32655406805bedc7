"""Tasks fold and write messages as Spark and Iceberg's writer do."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed
from tests.lakecdc.ingest.by_spark import with_engine
from tests.lakecdc.ingest.histories import PLACEHOLDER, History, Row
from tests.lakecdc.ingest.sources.log_ways import WAYS, files_of, rows_of

TYPES = {"id": "bigint", "name": "string", "n": "int", "doc": "string", "raw": "binary"}
COLUMNS = ", ".join(TYPES)
EVENTS = f"{COLUMNS}, _lakecdc_op, _lakecdc_unchanged, _lakecdc_old_key"
_COUNTED = (
    *("events", "events_c", "events_u", "events_d", "keys", "rows_written", "completions", "completion_lookups"),
    *("suspects", "older_dropped", "history_rows", "quarantined"),
)
SHARDS = {"source_tables": [r"shop\..*"], "source_column": "shard", "key": ["shard", "id"], "format_version": 3}
LEFT_OUT = {"doc": PLACEHOLDER, "raw": base64.b64encode(PLACEHOLDER.encode()).decode()}


class Large(History):
    """Two large values, which updates may omit; a delete is followed by its tombstone.

    Keys may be divided among shards.
    """

    shards = 1

    def statement(self, keys: int) -> None:
        """Run one random insert, update or delete."""
        key = self.rng.randrange(keys)
        if key not in self.rows:
            self.insert(key)
        elif self.rng.random() < 0.15:
            self.delete(key)
            deleted = self.events[-1]
            self.events.append({**deleted, "offset": deleted["offset"] + 1, "value": None})
        else:
            self.change(key, self.rng.sample(sorted(LEFT_OUT), self.rng.randrange(3)))

    def insert(self, key: int) -> None:
        """Insert a row."""
        self.rows[key] = {"id": key, "name": self._text("n"), "n": 0, **self._large()}
        self._event("c", None, self.rows[key])

    def change(self, key: int, left_out: list[str]) -> None:
        """Update a row and omit some large values."""
        large = {name: value for name, value in self._large().items() if name not in left_out}
        self.rows[key] |= {"name": self._text("u"), "n": self.rng.randrange(1000), **large}
        self._event("u", None, {**self.rows[key], **{name: LEFT_OUT[name] for name in left_out}})

    def _event(self, op: str, before: Row | None, after: Row | None, old_key: int | None = None) -> None:
        super()._event(op, before, after, old_key)
        # several within an hour
        event = self.events[-1]
        event["value"]["source"]["ts_ms"] += self.lsn * 60_000
        shard = f"t{event['key']['id'] % self.shards}"
        event["value"]["source"]["table"], event["topic"] = shard, f"pg.shop.{shard}"

    def _large(self) -> Row:
        raw = base64.b64encode(self.rng.randbytes(5)).decode()
        return {"doc": None if self.rng.random() < 0.2 else self._text("doc"), "raw": raw}

    def expected(self) -> list[tuple[Any, ...]]:
        return [tuple(r[c] for c in TYPES if c != "raw") for _, r in sorted(self.rows.items())]


class Ways:
    """Two tables of one feed, by the engine that fills them.

    :param target: settings of the target; ``{way}`` in texts becomes the table's name.
    """

    def __init__(self, lake: Lake, folder: Path, **target: Any) -> None:
        self.lake, self.name = lake, lake.new_name("ways")
        self.feeds = {}
        for way in WAYS:
            own = {k: v.format(way=self.of(way)) if isinstance(v, str) else v for k, v in target.items()}
            settings = {"columns": TYPES, "encodings": {"raw": "base64"}, **own}
            if "source_tables" not in own:
                settings["source_table"] = "t0"
            self.feeds[way] = Feed(lake, folder, settings, table=self.of(way))

    def of(self, way: str) -> str:
        """Return the name of a table."""
        return f"{self.name}_{way}"

    def take(self, events: list[dict[str, Any]], files: int = 3) -> dict[str, TableReport]:
        """Feed a batch of several files into both tables; their reports must be the same."""
        for part in range(files):
            self.feeds["by_tasks"].write(events[part::files])
        reports = {}
        for way, feed in self.feeds.items():
            with with_engine(WAYS[way]):
                reports[way] = feed.run()
        assert [r.outcome for r in reports.values()] == ["done", "done"], [r.reason for r in reports.values()]
        counts = {way: {fact: report.metrics.get(fact) for fact in _COUNTED} for way, report in reports.items()}
        assert counts["by_tasks"] == counts["by_spark"]
        decoded_by = {way: report.metrics["decoding"] for way, report in reports.items()}
        assert decoded_by == {"by_tasks": "one pass", "by_spark": "two passes: required by the test"}
        return reports

    def rows(self, suffix: str = "", columns: str = COLUMNS) -> list[str]:
        """Return the rows of both tables, which must be the same, down to order keys and source times."""
        rows_by_way = [rows_of(self.lake, self.of(way) + suffix, columns) for way in WAYS]
        assert rows_by_way[0] == rows_by_way[1]
        return rows_by_way[0]


@pytest.mark.parametrize(
    "target",
    [
        {
            "partition_by": ["bucket(3, id)"],
            "history_table": "{way}_log",
            "history_partition_by": ["hours(_lakecdc_source_time)"],
        },
        pytest.param({"mode": "merge"}, marks=pytest.mark.soak),
        pytest.param({"mode": "auto", "format_version": 3}, marks=pytest.mark.soak),
        pytest.param({"history_table": "{way}_log", **SHARDS}, marks=pytest.mark.soak),
        pytest.param({"clean": {"compute": {"size": "length(doc)"}, "filter": "n < 900"}}, marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_incomplete_updates_are_folded_by_tasks(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: dict[str, Any]
) -> None:
    # even a few rows get their own files
    monkeypatch.setattr("lakecdc.ingest.apply.packed._FEW_ROWS", 0)
    ways, history = Ways(lake, tmp_path, **target), Large(random.Random(5))
    history.shards = 1 + ("source_column" in target)
    for _ in range(40):
        history.statement(20)
    ways.take(history.events)
    done = len(history.events)
    for key in sorted(history.rows):
        # the values come from the table, from the batch, or one from each
        for left_out in (["doc", "raw"], ["doc"])[: 1 + key % 2]:
            history.change(key, left_out)
    for _ in range(20):
        history.statement(20)
    reports = ways.take(history.events[done:])
    metrics = reports["by_tasks"].metrics
    assert 0 < metrics["completion_lookups"] < metrics["completions"]
    rows = sorted(lake.duckdb_rows(ways.of("by_tasks"), "id, name, n, doc"))
    assert rows == [r for r in history.expected() if "clean" not in target or r[2] < 900]
    assert len(ways.rows()) == len(rows)
    if "history_table" in target:
        assert len(ways.rows("_log", EVENTS)) == sum(e["value"] is not None for e in history.events)
        assert {writer for writer, *_ in files_of(lake, f"{ways.of('by_tasks')}_log")} == {"events"}
    if "partition_by" in target:
        written = {way: [writer for writer, *_ in files_of(lake, ways.of(way))] for way in WAYS}
        # one per bucket and batch; values from the table are written as a frame
        assert (
            written["by_tasks"].count("ingest") == 6 < len(written["by_tasks"]) and "ingest" not in written["by_spark"]
        )


@pytest.mark.soak
@pytest.mark.parametrize(
    "target",
    [
        {"mode": "history", "partition_by": ["hours(_lakecdc_source_time)"]},
        {"mode": "history"},
        {"mode": "history", "partition_by": ["bucket(3, id)"]},
        {"mode": "append"},
    ],
    ids=str,
)
def test_appended_events_are_written_by_tasks(lake: Lake, tmp_path: Path, target: dict[str, Any]) -> None:
    appends = target["mode"] == "append"
    ways, history = Ways(lake, tmp_path, **target), Large(random.Random(6))
    for key in range(12):
        history.insert(key) if appends else history.statement(6)
    if not appends:
        key = next(iter(history.rows))
        history.change_key(key, 90)
    written = []
    first = history.events[:]
    for key in range(20, 29):
        history.insert(key)
    fresh = history.events[len(first) :]
    # the third batch has its events twice, and the last one repeats an earlier event
    for events in (first, fresh[:3], [*fresh[3:6], *fresh[3:6]], [*fresh[6:], first[0]]):
        ways.take(events)
        written.append([writer for writer, *_ in files_of(lake, ways.of("by_tasks"))])
    columns = COLUMNS if appends else EVENTS
    assert len(ways.rows(columns=columns)) == sum(e["value"] is not None for e in history.events)
    by_tasks = "bucket" not in str(target)
    assert [set(outputs) == {"events"} for outputs in written] == [by_tasks, by_tasks, False, False]
    assert written[3].count("events") == written[1].count("events")
    assert "events" not in {writer for writer, *_ in files_of(lake, ways.of("by_spark"))}
