"""Mode auto chooses by measured facts, and delete debt has a limit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.spec import parse_spec
from lakecdc.iceberg.fence import PositionFence
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.runtime.run import each_table, run
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed, PlainHistory, final_rows, in_batches, truncate
from tests.lakecdc.ingest.histories import History


def inserted(keys: int) -> PlainHistory:
    history = PlainHistory(random.Random(keys))
    for key in range(keys):
        history.insert(key)
    return history


def test_few_keys_are_upserted_and_many_merged(lake: Lake, tmp_path: Path) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "auto", "partition_by": ["bucket(2, id)"]}), inserted(30)
    first = feed.take(history.events).metrics
    assert (first["mode_chosen"], first["mode_reason"]) == ("upsert", "the table is empty")
    history.update(3, touch_doc=True)
    few = feed.take(history.events[-1:]).metrics
    assert few["mode_chosen"] == "upsert" and few["mode_reason"].startswith("1 keys; ")
    for key in range(0, 30, 2):
        history.update(key, touch_doc=True)
    many = feed.take(history.events[-15:]).metrics
    assert many["mode_chosen"] == "merge" and many["mode_reason"].startswith("15 keys; ")
    assert feed.rows() == final_rows(history)


@pytest.mark.usefixtures("proven_by_log_alone")
def test_repeated_commits_are_counted(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "upsert"}), inserted(2)
    assert feed.take(history.events[:1]).metrics["retries"] == 0

    validate, calls = PositionFence.validate, []

    def interfere(fence: PositionFence, ancestors: Any) -> bool:
        calls.append(1)
        if len(calls) == 1:
            lake.sql(f"INSERT INTO lake.{feed.table} (id, name) VALUES (5, 'meanwhile')")
        return validate(fence, ancestors)

    monkeypatch.setattr(PositionFence, "validate", interfere)
    metrics = feed.take(history.events[1:]).metrics
    assert metrics["retries"] >= 1 and metrics["rows_per_second"] > 0
    assert feed.rows() == sorted([*final_rows(history), (5, "meanwhile", None, None)], key=str)


def test_partitions_outside_the_key_are_merged(lake: Lake, tmp_path: Path) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "auto", "partition_by": ["truncate(3, name)"]}), History.of(2, 40)
    for events in in_batches(history, 20):
        metrics = feed.take(events).metrics
        assert metrics["mode_chosen"] == "merge" and "derive from name" in metrics["mode_reason"]
    assert feed.rows() == final_rows(history)


@pytest.mark.soak
@pytest.mark.parametrize("rows_with_it", [True, False])
def test_a_late_truncate_is_merged_and_reported(lake: Lake, tmp_path: Path, rows_with_it: bool) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "auto", "partition_by": ["bucket(2, id)"]}), inserted(30)
    feed.take(history.events)
    late = truncate(history)
    for key in range(40, 43):
        history.insert(key)
    new = history.events[31:]
    feed.take(new[:2])
    metrics = feed.take([late, *new[2:]] if rows_with_it else [late]).metrics
    assert metrics["mode_chosen"] == "merge" and metrics["mode_reason"].startswith("a TRUNCATE was late")
    if not rows_with_it:
        feed.take(new[2:])
    assert feed.rows() == final_rows(history)


def test_delete_debt_makes_auto_choose_merge(lake: Lake, tmp_path: Path) -> None:
    feed, history = Feed(lake, tmp_path, {"mode": "auto"}, options={"max_delete_files": 1}), inserted(20)
    feed.take(history.events)
    for expected in ("upsert", "merge"):
        history.update(1, touch_doc=True)
        metrics = feed.take(history.events[-1:]).metrics
        assert metrics["mode_chosen"] == expected
    assert "1 equality-delete files are outstanding" in metrics["mode_reason"]
    assert feed.rows() == final_rows(history)


def test_delete_debt_stops_upsert_until_rewritten(lake: Lake, tmp_path: Path) -> None:
    log = f"{lake.new_name('log')}"
    feed = Feed(lake, tmp_path, {"history_table": log}, options={"max_delete_files": 1})
    history = inserted(10)
    feed.take(history.events)
    history.update(1, touch_doc=True)
    feed.take(history.events[-1:])
    history.update(2, touch_doc=True)
    feed.write(history.events[-1:])
    report = feed.run()
    assert (report.outcome, report.failure_class) == ("conflict", "conflict")
    assert "1 equality-delete files" in (report.reason or "") and "rewrite_delete_files" in (report.reason or "")
    assert report.snapshot_before == report.snapshot_after
    assert len(feed.rows(log)) == len(history.events) - 1
    paid = run(parse_spec(lake.spec("rewrite_delete_files", feed.table)), each_table(rewrite_delete_files))
    assert paid.tables[0].outcome == "done"
    assert feed.run().outcome == "done"
    assert feed.rows() == final_rows(history)
    assert len(feed.rows(log)) == len(history.events)
