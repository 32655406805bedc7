"""An audited batch of a table with a history table is in both exactly once, or in neither."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from lakecdc.contract.checks import Condition
from lakecdc.ingest.audit import Audit, AuditError
from lakecdc.ingest.batch import CommitPlan
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import (
    EVENT_COLUMNS,
    Feed,
    Loads,
    PlainHistory,
    event_rows,
    final_rows,
    in_batches,
    truncate,
)
from tests.lakecdc.ingest.apply.test_audit import FEW, act_before_commit, asides, compact, history, with_bad_row
from tests.lakecdc.ingest.apply.test_history_table import assert_both, with_history
from tests.lakecdc.ingest.killing import Run, act_at
from tests.lakecdc.maintain.support import head


def failed(feed: Feed) -> str:
    """Run and return why the checks failed; neither table has changed."""
    log = str(feed.target["history_table"])
    before = [head(feed.lake, name) for name in (feed.table, log)]
    report = feed.run()
    assert (report.outcome, report.failure_class) == ("failed", "bad input")
    assert [head(feed.lake, name) for name in (feed.table, log)] == before
    return str(report.reason)


def test_a_batch_is_in_both_tables_or_in_neither(lake: Lake, tmp_path: Path) -> None:
    feed, log = with_history(lake, tmp_path, publish="audited", checks=[FEW])
    past = history(21)
    report = feed.take(past.events)
    assert [check["passed"] for check in report.metrics["checks"]] == [True]
    assert_both(feed, log, past)
    # the source corrects the row; both events are read together
    applied = len(past.events)
    with_bad_row(past)
    feed.write(past.events[applied:])
    assert "1 of 1 checks failed: condition(n < 1000): 1 row" in failed(feed)
    applied = len(past.events)
    past.update(next(key for key, row in past.rows.items() if row["n"] == 5000), touch_doc=True)
    feed.take(past.events[applied:])
    assert_both(feed, log, past)


@pytest.mark.soak
def test_a_failed_check_may_be_a_warning_for_one_run(lake: Lake, tmp_path: Path) -> None:
    feed, log = with_history(lake, tmp_path, publish="audited", checks=[FEW])
    past = history(21)
    feed.take(past.events)
    applied = len(past.events)
    with_bad_row(past)
    feed.write(past.events[applied:])
    assert "ahead" not in failed(feed)
    feed.target["checks"] = [{**FEW, "severity": "warn"}]
    assert feed.run().metrics["history_rows"] == 1
    assert_both(feed, log, past)


@pytest.mark.parametrize("ended", ["raise", pytest.param("kill", marks=pytest.mark.soak)])
def test_an_interrupted_batch_is_applied_once_its_checks_pass_again(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    feed, log = with_history(lake, tmp_path, publish="audited", checks=[FEW])
    past = history(22)
    first, second, third = in_batches(past, 15, 28)
    feed.take(first)
    before = feed.rows()
    feed.write(second)
    if ended == "kill":
        assert Run(tmp_path, feed.spec, "after_side_tables=kill").was_killed()
    else:
        act_at(monkeypatch, "after_side_tables=raise")
        assert "after_side_tables" in str(feed.run().reason)
        act_at(monkeypatch, "")
    entered = event_rows([*first, *second])
    assert feed.rows() == before and feed.rows(log, EVENT_COLUMNS) == entered
    # events that arrive meanwhile must not join the batch
    feed.write(third)
    feed.target["checks"] = [{"type": "condition", "condition": "n < 0"}]
    reason = failed(feed)
    assert f"The history table {log} is ahead of {feed.table}: " in reason and "correct the checks" in reason
    assert feed.rows() == before and feed.rows(log, EVENT_COLUMNS) == entered
    feed.target["checks"] = [FEW]
    report = feed.run()
    assert (report.outcome, report.metrics["commits"], report.metrics["history_commits"]) == ("done", 2, 1)
    assert report.metrics["history_rows"] == len(third)
    assert_both(feed, log, past)


def test_a_batch_staged_and_checked_again_is_applied_once(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, log = with_history(lake, tmp_path, publish="audited", table_checks=[{"type": "row_count", "min": 1}])
    past = history(23, 60)
    first, second, third = in_batches(past, 20, 40)
    feed.take(first)
    feed.take(second)

    def meanwhile() -> None:
        assert len(feed.rows(log)) == len(past.events), "the history table comes first"
        compact(feed)

    acted = act_before_commit(monkeypatch, meanwhile)
    report = feed.take(third)
    assert acted and len(asides(lake, feed.table)) == 4, "one batch was checked twice"
    assert (report.metrics["history_commits"], report.metrics["history_rows"]) == (1, len(third))
    assert_both(feed, log, past)


@pytest.mark.soak
def test_a_failed_truncate_is_not_in_the_history(lake: Lake, tmp_path: Path) -> None:
    feed, log = with_history(lake, tmp_path, publish="audited", table_checks=[{"type": "row_count", "min": 1}])
    past = PlainHistory(random.Random(24))
    past.insert(1)
    past.insert(2)
    feed.take(past.events)
    truncate(past)
    feed.write(past.events[2:])
    assert "row_count: 0 rows" in failed(feed)
    past.insert(3)
    feed.take(past.events[3:])
    assert feed.rows() == final_rows(past)
    assert feed.rows(log, "_lakecdc_op, id") == [("c", 1), ("c", 2), ("c", 3), ("t", None)]


def test_a_failed_full_load_is_in_neither_table(lake: Lake) -> None:
    loads, few = Loads(lake), Condition(condition="v < 'm'")

    def load(place: int, rows: dict[int, str]) -> None:
        loads.feed(replace(loads.batch(place, rows), commit=CommitPlan(audit=Audit((few,), (), show_values=False))))

    with pytest.raises(AuditError):
        load(1, {1: "a", 2: "z"})
    assert lake.table(loads.target.table).head() is None
    assert not lake.spark.catalog.tableExists(f"lake.{loads.log}")
    load(2, {1: "a", 2: "b"})
    assert loads.rows() == [("r", 1, "a", "0002"), ("r", 2, "b", "0002")]
    assert sorted(lake.duckdb_rows(loads.target.table, "id, v")) == [(1, "a"), (2, "b")]
