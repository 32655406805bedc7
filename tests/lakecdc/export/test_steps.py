"""Every step of a row, exported from its history table and compared with a model of the arrived events."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.export.job import export_changes
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.rollback import rollback_tables
from lakecdc.runtime.run import each_table
from lakecdc.runtime.run import run as run_job
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Events, Feed, PlainHistory, truncate
from tests.lakecdc.ingest.histories import History
from tests.lakecdc.ingest.killing import Run, act_at
from tests.lakecdc.maintain.support import head, metadata_location, run
from tests.lakecdc.moments.support import fed
from tests.on_demand import on_demand

Image = tuple[Any, ...] | None
#: lsn, the row before, the row after
Step = tuple[int, Image, Image]


@dataclass
class Known(History):
    """A history with each event's whole row and the events that have arrived.

    :ivar images: by lsn and key, the row after the event, None if it was deleted. A key of None is a TRUNCATE.
    """

    images: dict[tuple[int, int | None], Image] = field(default_factory=dict)
    arrived: set[tuple[int, int | None]] = field(default_factory=set)

    def truncate(self) -> None:
        event = truncate(self)
        event["value"]["source"]["ts_ms"] = 1_700_000_000_000 + self.lsn
        self.images[self.lsn, None] = None

    def _event(self, op: str, before: Any, after: Any, old_key: int | None = None) -> None:
        super()._event(op, before, after, old_key)
        row = self.rows.get((after or before)["id"]) if after else None
        self.images[self.lsn, (after or before)["id"]] = tuple(row.values()) if row else None

    def steps(self, events: Events) -> list[Step]:
        """Return the steps of newly arrived events, each based on the row known before it."""
        new = {(e["value"]["source"]["lsn"], e["key"]["id"] if e["key"] else None) for e in events} - self.arrived
        self.arrived |= new
        arriving: list[Step] = []
        for lsn, key in new:
            keys = {k for _, k in self.arrived if k is not None} if key is None else {key}
            steps = [(lsn, self._before(each, lsn), self.images[lsn, key]) for each in keys]
            arriving += [step for step in steps if step[1:] != (None, None)]
        return sorted(arriving, key=str)

    def _before(self, key: int, lsn: int) -> Image:
        """Return the row after the last known event before ``lsn``."""
        earlier = [(at, k) for at, k in self.arrived if at < lsn and k in (key, None)]
        return self.images[max(earlier, key=lambda e: e[0])] if earlier else None


@dataclass
class KnownPlain(Known, PlainHistory):
    """The same with events in any order of arrival."""


def export(feed: Feed, way: str, folder: Path, **options: Any) -> TableReport:
    """Run the job as the job runner does."""
    spec = parse_spec(feed.lake.spec("export_changes", feed.table, options=options_of(feed, way, folder, **options)))
    report = run_job(spec, each_table(export_changes))
    assert not report.error, report.error
    return report.tables[0]


def options_of(feed: Feed, way: str, folder: Path, **options: Any) -> dict[str, Any]:
    place = {"table": f"{feed.table}_changes"} if way == "table" else {"folder": str(folder), "format": way}
    return {"destinations": {feed.table: place}, "history_tables": {feed.table: f"{feed.table}_history"}, **options}


def exported(feed: Feed, way: str, folder: Path) -> list[Step]:
    """Return the steps of the newest export and check the order of a folder's lines."""
    if way == "table":
        columns = "_lakecdc_order, _change_type, _commit_snapshot_id, id, name, n, doc"
        rows = feed.lake.duckdb_rows(f"{feed.table}_changes", columns)
        return paired([(row[0], row[1], row[3:]) for row in rows if row[2] == head(feed.lake, feed.table)])
    newest = max(folder.glob("*/_SUCCESS")).parent
    lines = [line for file in sorted(newest.glob("*.jsonl")) for line in file.read_text().splitlines()]
    envelopes = [json.loads(line) for line in lines]
    orders = [(each["after"] or each["before"])["_lakecdc_order"] for each in envelopes]
    assert orders == sorted(orders)
    for each in envelopes:
        assert each["source"]["ts_ms"] == 1_700_000_000_000 + lsn_of(
            (each["after"] or each["before"])["_lakecdc_order"]
        )
        assert each["op"] == ("u" if each["before"] and each["after"] else "c" if each["after"] else "d")
    images = [[plain(each[image]) for image in ("before", "after")] for each in envelopes]
    return sorted(((lsn_of(o), *both) for o, both in zip(orders, images, strict=True)), key=str)  # type: ignore[misc]


def plain(image: dict[str, Any] | None) -> Image:
    return tuple(image[name] for name in ("id", "name", "n", "doc")) if image else None


def paired(rows: Iterable[tuple[str, str, tuple[Any, ...]]]) -> list[Step]:
    """Pair change rows by event and key."""
    images_by_row: dict[tuple[str, int], list[Image]] = {}
    for order, kind, row in rows:
        images = images_by_row.setdefault((order, row[0]), [None, None])
        place = int(kind in ("insert", "update_after"))
        assert images[place] is None
        images[place] = row
    return sorted(((lsn_of(order), *images) for (order, _), images in images_by_row.items()), key=str)  # type: ignore[misc]


def lsn_of(order: str) -> int:
    return ORDERS[order]


#: lsn by order key, from the history tables
ORDERS: dict[str, int] = {}


def learn_orders(feed: Feed) -> None:
    """Record the lsn of each order key."""
    rows = feed.lake.duckdb_rows(f"{feed.table}_history", "_lakecdc_order, epoch_ms(_lakecdc_source_time)")
    ORDERS.update({order: moment - 1_700_000_000_000 for order, moment in rows})


@pytest.mark.parametrize(
    ("version", "way"), on_demand(itertools.product((2, 3), ("table", "debezium-json")), in_ci=[(2, "table")])
)
def test_every_step_of_a_random_history_is_exported(lake: Lake, tmp_path: Path, version: int, way: str) -> None:
    target: dict[str, Any] = {"format_version": version, "partition_by": ["bucket(2, id)"]}
    feed, history = fed(lake, tmp_path / "files", **target), Known.of(60 + version, 15, keys=8)
    feed.take(history.events)
    folder = tmp_path / way
    first = export(feed, way, folder)
    assert first.metrics["changes"] == {"insert": len(history.rows)}
    history.steps(history.events)
    applied = len(history.events)
    for number in range(30):
        history.statement(8)
        if number == 20:
            history.truncate()
    # the two events of a key change may arrive in two batches
    middle = (applied + len(history.events)) // 2
    for events in (history.events[applied:middle], history.events[middle:]):
        feed.take(events)
    run(lake, rewrite_delete_files, feed.table)
    run(lake, compact_data_files, feed.table, min_input_files=2)
    learn_orders(feed)
    report = export(feed, way, folder)
    assert report.outcome == "done", report.reason
    assert exported(feed, way, folder) == history.steps(history.events[applied:])
    assert export(feed, way, folder).outcome == "nothing"


def test_late_steps_are_exported_on_top_of_earlier_ones(lake: Lake, tmp_path: Path) -> None:
    feed, history = fed(lake, tmp_path / "files", partition_by=["bucket(2, id)"]), KnownPlain(random.Random(71))
    for _ in range(40):
        history.statement(6)
    events = history.events[10:]
    random.Random(72).shuffle(events)
    feed.take(history.events[:10])
    export(feed, "table", tmp_path)
    history.steps(history.events[:10])
    for arriving in (events[:12], events[12:] + events[:5]):
        feed.take(arriving)
        learn_orders(feed)
        report = export(feed, "table", tmp_path)
        assert report.outcome == "done", report.reason
        assert exported(feed, "table", tmp_path) == history.steps(arriving)


def test_steps_are_refused_where_values_have_no_event(lake: Lake, tmp_path: Path) -> None:
    feed, history = fed(lake, tmp_path / "files", partition_by=["truncate(4, id)"]), Known(random.Random(81))
    for key in range(8):
        history.insert(key)
    feed.take(history.events)
    first = head(lake, feed.table)
    export(feed, "table", tmp_path)
    history.steps(history.events)
    applied = len(history.events)

    def refused() -> str:
        before = metadata_location(lake, f"{feed.table}_changes")
        report = export(feed, "table", tmp_path)
        assert (report.failure_class, metadata_location(lake, f"{feed.table}_changes")) == ("bad input", before)
        return report.reason or ""

    lake.sql(f"UPDATE lake.{feed.table} SET n = -1 WHERE id = 7")
    history.update(1, touch_doc=True)
    feed.take(history.events[applied:])
    assert "1 rows differ from the result of their events" in refused()
    # net changes can always be exported, and the next steps after them
    assert export(feed, "table", tmp_path, history_tables={}).outcome == "done"
    history.steps(history.events[applied:])
    applied = len(history.events)
    history.update(2, touch_doc=False)
    feed.take(history.events[applied:])
    learn_orders(feed)
    dry = export(feed, "table", tmp_path, dry_run=True)
    assert dry.metrics["changes"] == {"update_before": 1, "update_after": 1}
    assert export(feed, "table", tmp_path).outcome == "done"
    assert exported(feed, "table", tmp_path) == history.steps(history.events[applied:])
    run(lake, rollback_tables, feed.table, to=str(first))
    assert "was rolled back" in refused()


# a separate process has to start Spark: CI uses a fail point instead
@pytest.mark.parametrize(
    ("way", "failpoint", "outcome"),
    on_demand(
        [
            ("debezium-json", "before_marker=kill", "done"),
            ("table", "after_commit=kill", "nothing"),
            ("table", "after_commit=raise", "nothing"),
        ],
        in_ci=[("table", "after_commit=raise", "nothing")],
    ),
)
def test_an_interrupted_run_exports_each_step_once(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, failpoint: str, outcome: str
) -> None:
    feed, history = fed(lake, tmp_path / "files", partition_by=["bucket(2, id)"]), Known.of(91, 20)
    feed.take(history.events[:10])
    history.steps(history.events[:10])
    folder = tmp_path / way
    export(feed, way, folder)
    feed.take(history.events[10:])
    learn_orders(feed)
    if failpoint.endswith("kill"):
        spec = lake.spec("export_changes", feed.table, options=options_of(feed, way, folder, consumer=way[:5]))
        assert Run(tmp_path, spec, failpoint).was_killed()
    else:
        act_at(monkeypatch, failpoint)
        assert "after_commit" in str(export(feed, way, folder, consumer=way[:5]).reason)
        act_at(monkeypatch, "")
    assert export(feed, way, folder, consumer=way[:5]).outcome == outcome
    assert exported(feed, way, folder) == history.steps(history.events[10:])
