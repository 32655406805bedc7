"""Modes history and append write every event once, even if it arrives twice."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.apply.events import events_of
from lakecdc.ingest.change import Rows
from lakecdc.maintain.sort import sort_data_files
from lakecdc.runtime.run import each_table, run
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import (
    EVENT_COLUMNS,
    Feed,
    Loads,
    PlainHistory,
    event_rows,
    final_rows,
    in_batches,
    scattered,
    truncate,
)
from tests.lakecdc.ingest.histories import History
from tests.on_demand import on_demand

HISTORY = {"mode": "history", "partition_by": ["days(_lakecdc_source_time)", "name"]}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_history_equals_the_event_list(lake: Lake, tmp_path: Path, seed: int) -> None:
    feed, history = Feed(lake, tmp_path, HISTORY), History.of(seed, 40)
    for events in scattered(history, seed, 2):
        feed.take(events)
    assert feed.rows(columns=EVENT_COLUMNS) == event_rows(history.events)
    assert feed.run().outcome == "nothing"


def test_order_keys_put_the_history_in_order(lake: Lake, tmp_path: Path) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "history", "format_version": 3}), History.of(3, 30)
    report = feed.take(history.events)
    rows = sorted(lake.duckdb_rows(feed.table, "_lakecdc_order, _lakecdc_op, id"))
    assert [r[1:] for r in rows] == [(e["value"]["op"], e["key"]["id"]) for e in history.events]
    assert report.metrics["events_d"] == sum(e["value"]["op"] == "d" for e in history.events)
    assert report.metrics["rows_written"] == len(history.events)
    assert not lake.spark.catalog.tableExists(f"lake.{feed.table}_view")


def test_old_keys_are_exact(lake: Lake) -> None:
    loads = Loads(lake)
    at = F.struct(F.timestamp_micros(F.lit(1_700_000_000_000_001)).alias("at"))
    name = loads.target.table
    lake.sql(f"CREATE TABLE lake.{name} (_lakecdc_old_key string) USING iceberg")
    batch = loads.batch(10, {1: "a"})
    assert batch.rows is not None
    rows = events_of(lake.table(name), replace(batch, rows=Rows(batch.rows.frame.withColumn("old_key", at))))
    assert rows is not None
    assert rows.select(F.from_json("_lakecdc_old_key", "at timestamp")["at"] == at["at"]).first() == (True,)


@pytest.mark.soak
def test_history_has_no_view_and_needs_no_key(lake: Lake, tmp_path: Path) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "history", "key": []}), PlainHistory.of(4, 12)
    feed.take(history.events)
    assert sorted(feed.rows(columns="_lakecdc_op")) == sorted((e["value"]["op"],) for e in history.events)
    assert not lake.spark.catalog.tableExists(f"lake.{feed.table}_view")


@pytest.mark.soak
def test_the_nightly_sort_knows_the_sort_columns(lake: Lake, tmp_path: Path) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "history"}), PlainHistory.of(11, 12)
    for events in (history.events[::2], history.events[1::2]):
        feed.take(events)
    spec = lake.spec("sort_data_files", feed.table, options={"min_overlap_depth": 0.5})
    report = run(parse_spec(spec), each_table(sort_data_files)).tables[0]
    assert report.outcome == "done", report.reason
    assert feed.rows(columns=EVENT_COLUMNS) == event_rows(history.events)


def test_truncate_is_a_row_of_the_history(lake: Lake, tmp_path: Path) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "history"}), PlainHistory(random.Random(5))
    for key in range(3):
        history.insert(key)
    event = truncate(history)
    history.insert(9)
    feed.take(history.events)
    feed.take(history.events[1:])
    rows = sorted(lake.duckdb_rows(feed.table, "_lakecdc_order, _lakecdc_op, id, _lakecdc_source_time"))
    assert [r[1:3] for r in rows] == [("c", 0), ("c", 1), ("c", 2), ("t", None), ("c", 9)]
    assert rows[3][3].timestamp() * 1000 == event["value"]["source"]["ts_ms"]


def test_a_new_column_reaches_the_history(lake: Lake, tmp_path: Path) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "history"}), PlainHistory.of(6, 5)
    first = len(history.events)
    feed.take(history.events)
    history.insert(77)
    history.events[-1]["value"]["after"]["extra"] = 1.5
    report = feed.take(history.events[first:])
    assert report.metrics["schema_changes"] == ["added extra double"]
    assert len(feed.rows()) == len(history.events)
    assert (77, 1.5) in feed.rows(columns="id, extra")


def test_append_keeps_row_images_once(lake: Lake, tmp_path: Path) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "append", "key": []}), PlainHistory(random.Random(7))
    for key in range(20):
        history.insert(key)
    for events in scattered(history, 7, 2):
        feed.take(events)
    assert feed.rows() == final_rows(history)
    assert sorted(lake.spark.table(f"lake.{feed.table}_view").columns) == ["doc", "id", "n", "name"]


@pytest.mark.parametrize("operation", on_demand(("update", "delete", "TRUNCATE"), in_ci=("update",)))
def test_append_refuses_changes_and_writes_nothing(lake: Lake, tmp_path: Path, operation: str) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "append"}), PlainHistory(random.Random(8))
    history.insert(1)
    feed.take(history.events)
    history.insert(2)
    if operation == "update":
        history.update(1, touch_doc=True)
    elif operation == "delete":
        history.delete(1)
    else:
        truncate(history)
    feed.write(history.events[1:])
    report = feed.run()
    assert (report.outcome, report.failure_class) == ("failed", "bad input")
    assert all(part in str(report.reason) for part in (operation, "mode history", "upsert")), report.reason
    assert report.snapshot_before == report.snapshot_after
    assert len(feed.rows()) == 1


@pytest.mark.soak
def test_dry_run_counts_events(lake: Lake, tmp_path: Path) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "history"}, options={"dry_run": True}), PlainHistory.of(9, 9)
    feed.write(history.events)
    assert feed.run().metrics["events_c"] == sum(e["value"]["op"] == "c" for e in history.events)
    assert not lake.spark.catalog.tableExists(f"lake.{feed.table}")


def test_batches_of_an_ordered_source_are_not_compared(lake: Lake, tmp_path: Path) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "history"}), History.of(10, 20)
    first, second = in_batches(history, 10)
    feed.take(first)
    data = Path(lake.table(feed.table).location.removeprefix("file:")) / "data"
    hidden = {path: path.with_suffix(".hidden") for path in data.rglob("*.parquet")}
    for path, away in hidden.items():
        path.rename(away)
    feed.take(second)
    for path, away in hidden.items():
        away.rename(path)
    assert feed.rows(columns=EVENT_COLUMNS) == event_rows(history.events)
