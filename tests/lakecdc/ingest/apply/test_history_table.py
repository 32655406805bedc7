"""A change log beside a table of current rows: one pass, one position, no event twice."""

from __future__ import annotations

import collections
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from lakecdc.ingest.apply.history_table import same_place
from lakecdc.ingest.apply.modes import apply_rows
from lakecdc.ingest.batch import CommitPlan
from lakecdc.ingest.change import Rows
from lakecdc.metadata.positions import Position, nearest_carrier
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
from tests.lakecdc.ingest.killing import Run


def with_history(lake: Lake, folder: Path, **target: Any) -> tuple[Feed, str]:
    name = lake.new_name("side")
    log = f"{name}_history"
    settings = {"history_table": log, "history_partition_by": ["days(_lakecdc_source_time)"], **target}
    return Feed(lake, folder, settings, table=name), log


def position_of(lake: Lake, name: str) -> Position:
    carrier = nearest_carrier((s.id, s.summary) for s in lake.table(name).ancestors())
    assert carrier
    return carrier.position


def assert_both(feed: Feed, log: str, history: History) -> None:
    assert feed.rows() == final_rows(history)
    assert feed.rows(log, EVENT_COLUMNS) == event_rows(history.events)
    assert position_of(feed.lake, log).offsets == position_of(feed.lake, feed.table).offsets


@pytest.mark.parametrize("mode", ["upsert", pytest.param("merge", marks=pytest.mark.soak)])
def test_one_pass_feeds_both_tables(lake: Lake, tmp_path: Path, mode: str) -> None:
    feed, log = with_history(lake, tmp_path, mode=mode, partition_by=["bucket(2, id)"])
    history = History.of(1, 40)
    for events in in_batches(history, 20):
        report = feed.take(events)
        assert report.metrics["history_rows"] == len(events)
    assert_both(feed, log, history)
    assert feed.run().outcome == "nothing"


@pytest.mark.soak
def test_scattered_events_reach_both_tables(lake: Lake, tmp_path: Path) -> None:
    (feed, log), history = with_history(lake, tmp_path), PlainHistory.of(2, 40)
    for events in scattered(history, 2, 3):
        feed.take(events)
    assert_both(feed, log, history)


def test_a_truncate_reaches_both_tables(lake: Lake, tmp_path: Path) -> None:
    (feed, log), history = with_history(lake, tmp_path), PlainHistory(random.Random(3))
    history.insert(1)
    history.insert(2)
    feed.take(history.events)
    truncate(history)
    history.insert(3)
    feed.take(history.events[2:])
    assert feed.rows() == final_rows(history)
    assert feed.rows(log, "_lakecdc_op, id") == [("c", 1), ("c", 2), ("c", 3), ("t", None)]


@pytest.mark.parametrize("mode", ["upsert", pytest.param("merge", marks=pytest.mark.soak)])
def test_a_failure_between_the_commits_repeats_nothing(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    feed, log = with_history(lake, tmp_path, mode=mode)
    history = History.of(4, 40)
    first, second, third = in_batches(history, 15, 28)
    for failing in (first, second):
        feed.write(failing)
        monkeypatch.setattr("lakecdc.runtime.failpoints._passes", collections.Counter())
        monkeypatch.setenv("LAKECDC_FAILPOINT", "after_side_tables=raise")
        assert "after_side_tables" in (feed.run().reason or "")
        monkeypatch.delenv("LAKECDC_FAILPOINT")
        # events that arrive meanwhile must not join the interrupted batch
        if failing is second:
            feed.write(third)
        else:
            assert feed.run().outcome == "done"
    report = feed.run()
    assert (report.outcome, report.metrics["commits"], report.metrics["history_rows"]) == ("done", 2, len(third))
    assert_both(feed, log, history)


@pytest.mark.soak
def test_a_kill_between_the_commits_repeats_nothing(lake: Lake, tmp_path: Path) -> None:
    (feed, log), history = with_history(lake, tmp_path), History.of(5, 30)
    first, second, third = in_batches(history, 10, 20)
    feed.take(first)
    feed.write(second)
    assert Run(tmp_path, feed.spec, "after_side_tables=kill").was_killed()
    assert len(feed.rows(log)) == len(first) + len(second)
    feed.take(third)
    assert_both(feed, log, history)


@pytest.mark.soak
def test_a_missing_file_of_the_interrupted_batch_is_refused(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (feed, log), history = with_history(lake, tmp_path), PlainHistory.of(6, 20)
    first, second = in_batches(history, 10)
    feed.take(first)
    feed.write(second)
    monkeypatch.setenv("LAKECDC_FAILPOINT", "after_side_tables=raise")
    feed.run()
    monkeypatch.delenv("LAKECDC_FAILPOINT")
    (tmp_path / "0001.jsonl").unlink()
    report = feed.run()
    assert report.failure_class == "bad input" and "Put the files back" in (report.reason or "")
    assert len(feed.rows(log)) == len(history.events)


@pytest.mark.soak
def test_a_separately_fed_table_is_not_a_history_table(lake: Lake, tmp_path: Path) -> None:
    log, history = lake.new_name("alone"), PlainHistory.of(7, 6)
    (tmp_path / "alone").mkdir()
    Feed(lake, tmp_path / "alone", {"mode": "history"}, table=log).take(history.events)
    feed = Feed(lake, tmp_path, {"history_table": log})
    feed.write(history.events)
    report = feed.run()
    assert report.failure_class == "bad input" and "fed separately" in (report.reason or "")
    assert len(feed.rows(log)) == len(history.events)


def test_an_interrupted_full_load_is_retracted(lake: Lake) -> None:
    loads = Loads(lake)
    loads.feed(loads.batch(5, {1: "a", 2: "b", 3: "gone"}), interrupted=True)
    assert len(loads.rows()) == 3
    loads.feed(loads.batch(7, {1: "a2", 2: "b"}))
    assert loads.rows() == [("r", 1, "a2", "0007"), ("r", 2, "b", "0007")]
    loads.feed(loads.batch(9, {1: "a3"}, full_load=False))
    assert len(loads.rows()) == 3


@pytest.mark.soak
def test_the_history_continues_after_its_target_is_loaded_again(lake: Lake) -> None:
    loads = Loads(lake)
    loads.feed(loads.batch(7, {1: "a2", 2: "b"}))
    loads.feed(loads.batch(9, {1: "a3"}, full_load=False))
    lake.sql(f"DROP TABLE lake.{loads.target.table}")
    loads.feed(loads.batch(11, {1: "a4"}), interrupted=True)
    loads.feed(loads.batch(12, {1: "a5"}))
    assert [r[3] for r in loads.rows()] == ["0007", "0012", "0007", "0009"]


@pytest.mark.parametrize("mode", ["upsert", pytest.param("merge", marks=pytest.mark.soak)])
def test_a_batch_with_a_row_that_cannot_be_computed_is_not_entered(lake: Lake, mode: str) -> None:
    loads, entered = Loads(lake), list[str]()
    loads.feed(loads.batch(1, {1: "a"}))
    table = lake.table(loads.target.table)
    plan = CommitPlan(enter_history=lambda: entered.append(mode))
    batch = replace(loads.batch(2, {1: "b"}, full_load=False), commit=plan)
    assert batch.rows
    misfit = F.struct(F.col("key.id"), F.raise_error(F.lit("a misfit")).cast("string").alias("v"))
    rows = batch.rows.frame.select("key", "op", misfit.alias("row"), "order", "source_time")
    carrier = nearest_carrier((s.id, s.summary) for s in table.ancestors())
    assert carrier
    with pytest.raises(Exception, match="a misfit"):
        apply_rows(mode, table, replace(batch, rows=Rows(rows, folded=True, keys=1)), batch.position, carrier.text)
    rows = batch.rows.frame.select("key", "op", "row", "order", "source_time")
    apply_rows(mode, table, replace(batch, rows=Rows(rows, folded=True, keys=1)), batch.position, carrier.text)
    assert entered == [mode]


def test_batches_smaller_than_the_interrupted_one_repeat_nothing(lake: Lake) -> None:
    loads = Loads(lake)
    loads.feed(loads.batch(1, {1: "a"}))
    one, two = (loads.batch(place, {place: "b"}, full_load=False) for place in (2, 3))
    assert one.rows and two.rows
    loads.feed(replace(two, rows=Rows(one.rows.frame.unionByName(two.rows.frame))), interrupted=True)
    loads.feed(one)
    loads.feed(two)
    assert loads.rows() == [("r", 1, "a", "0001"), ("u", 2, "b", "0002"), ("u", 3, "b", "0003")]


def test_same_place_ignores_applied_orders() -> None:
    here = Position("files", "x", {"a": 1}, "2026-01-01", "00ff")
    assert same_place(here, Position("files", "x", {"a": 1}))
    assert not same_place(here, Position("files", "y", {"a": 1}, "2026-01-01", "00ff"))
