"""Batches that are published only if their checks hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakecdc.iceberg.refs import read_refs
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.metadata.names import AUDIT_BRANCH, POSITIONS
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import Feed, PlainHistory, event_rows, final_rows, in_batches, truncate
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.maintain.support import head, listed_files, metadata_location, run, snapshots
from tests.on_demand import on_demand
from tests.versions import V2, V3

FEW = {"type": "condition", "condition": "n < 1000"}


def audited(lake: Lake, folder: Path, **target: Any) -> Feed:
    return Feed(lake, folder, {"publish": "audited", "checks": [FEW], **target})


def history(seed: int, statements: int = 40) -> PlainHistory:
    plain = PlainHistory.of(seed, statements)
    assert isinstance(plain, PlainHistory)
    return plain


def with_bad_row(past: PlainHistory) -> None:
    """Add an event whose row fails every check; its correction comes later."""
    key = next(iter(past.rows))
    past.rows[key]["n"] = 5000
    past._event("u", None, past.rows[key])


def files(lake: Lake, name: str, snapshot_id: int) -> set[str]:
    return {file.file_path for file in listed_files(lake, name, ref=snapshot_id)}


def asides(lake: Lake, name: str) -> list[int]:
    """Return the ids of the snapshots that were never on main."""
    table = lake.table(name)
    mains = {snapshot.id for snapshot in table.ancestors()}
    return [id for id in snapshots(lake, name) if id not in mains]


def act_before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[str]:
    """Act once, after the checks of the next batch; return the moments at which it happened."""
    acted: list[str] = []

    def reach(moment: str) -> None:
        if moment == "before_commit" and not acted:
            acted.append(moment)
            act()

    monkeypatch.setattr("lakecdc.runtime.failpoints.reach", reach)
    return acted


def compact(feed: Feed) -> None:
    assert run(feed.lake, compact_data_files, feed.table, min_input_files=2).outcome == "done"


@V2
def test_a_passed_batch_is_published_with_the_checked_files(lake: Lake, tmp_path: Path, version: int) -> None:
    table_checks = [{"type": "unique", "columns": ["id"]}, {"type": "row_count", "max": 12}]
    feed = audited(lake, tmp_path, format_version=version, table_checks=table_checks)
    past = history(version)
    for events in in_batches(past, 25):
        report = feed.take(events)
        assert [each["passed"] for each in report.metrics["checks"]] == [True, True, True]
        assert files(lake, feed.table, asides(lake, feed.table)[-1]) == files(lake, feed.table, head(lake, feed.table))
        assert AUDIT_BRANCH not in read_refs(lake.table(feed.table))
        assert lake.table(feed.table).head().summary[POSITIONS]  # type: ignore[union-attr]
    assert feed.rows() == final_rows(past)
    # snapshots outside main expire and take no file with them
    run(lake, expire_snapshots, feed.table, older_than="2999-01-01", retain_last=1)
    assert asides(lake, feed.table) == []
    assert feed.rows() == final_rows(past)


@V3
def test_a_failed_batch_waits_on_a_branch_until_corrected(lake: Lake, tmp_path: Path, version: int) -> None:
    feed = audited(lake, tmp_path, format_version=version)
    past = history(3)
    feed.take(past.events)
    before, rows = head(lake, feed.table), feed.rows()
    assert asides(lake, feed.table) == [], "the rows of a batch are checked without a commit"
    applied = len(past.events)
    with_bad_row(past)
    feed.write(past.events[applied:])
    for options, shown in (({}, False), ({"report_values": True}, True)):
        feed.options = options
        report = feed.run()
        assert (report.outcome, report.failure_class) == ("failed", "bad input")
        assert "1 of 1 checks failed: condition(n < 1000): 1 row" in str(report.reason)
        assert ('"n":5000' in str(report.reason)) is shown
        assert (head(lake, feed.table), feed.rows()) == (before, rows)
        assert lake.duckdb_rows(feed.table, "max(n)", ref=AUDIT_BRANCH) == [(5000,)]
    # the source corrects the row; both events are read together
    bad = next(key for key, row in past.rows.items() if row["n"] == 5000)
    applied = len(past.events)
    past.update(bad, touch_doc=True)
    feed.take(past.events[applied:])
    assert feed.rows() == final_rows(past)
    assert AUDIT_BRANCH not in read_refs(lake.table(feed.table))


@pytest.mark.parametrize("moment", on_demand(("after_staging", "before_commit"), in_ci=("before_commit",)))
def test_a_run_interrupted_before_the_commit_is_repeated(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    feed = audited(lake, tmp_path, table_checks=[{"type": "row_count", "min": 1}])
    past = history(4)
    first, second = in_batches(past, 20)
    feed.take(first)
    before = head(lake, feed.table)
    feed.write(second)
    act_at(monkeypatch, f"{moment}=raise")
    assert feed.run().outcome == "failed"
    assert head(lake, feed.table) == before
    act_at(monkeypatch, "")
    assert feed.run().outcome == "done"
    assert feed.rows() == final_rows(past)


@pytest.mark.soak
def test_the_table_is_checked_again_if_others_commit_meanwhile(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = audited(lake, tmp_path, checks=[], table_checks=[{"type": "row_count", "min": 1}])
    past = history(5, 60)
    first, second, third = in_batches(past, 20, 40)
    feed.take(first)
    feed.take(second)
    acted = act_before_commit(monkeypatch, lambda: compact(feed))
    feed.take(third)
    assert acted and feed.rows() == final_rows(past)
    assert len(asides(lake, feed.table)) == 4, "one batch was checked twice"


@pytest.mark.parametrize("drops", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_expiry_before_the_commit_keeps_files_of_the_checked_batch(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drops: bool
) -> None:
    feed = audited(lake, tmp_path, checks=[], table_checks=[{"type": "row_count", "min": 1}])
    past = history(9)
    first, second = in_batches(past, 20)
    feed.take(first)
    before = feed.rows()

    def expire() -> None:
        if drops:
            lake.sql(f"ALTER TABLE lake.{feed.table} DROP BRANCH {AUDIT_BRANCH}")
        expired = f"table => '{feed.table}', older_than => TIMESTAMP '2999-01-01', retain_last => 1"
        lake.sql(f"CALL lake.system.expire_snapshots({expired})")

    acted = act_before_commit(monkeypatch, expire)
    feed.write(second)
    report = feed.run()
    assert acted and report.outcome == ("conflict" if drops else "done")
    assert feed.rows() == (before if drops else final_rows(past))
    assert AUDIT_BRANCH not in read_refs(lake.table(feed.table))
    if drops:
        assert AUDIT_BRANCH in str(report.reason) and feed.run().outcome == "done"
        assert feed.rows() == final_rows(past)


def test_rows_left_by_a_truncate_are_checked(lake: Lake, tmp_path: Path) -> None:
    checks = [{"type": "row_count", "max": 2}]
    feed = audited(lake, tmp_path, checks=[], table_checks=[{**checks[0], "severity": "warn"}])
    past = history(6)
    report = feed.take(past.events)
    assert len(past.rows) > 2 and [each["passed"] for each in report.metrics["checks"]] == [False]
    feed.target["table_checks"], applied = checks, len(past.events)
    truncate(past)
    past.insert(1)
    feed.take(past.events[applied:])
    assert feed.rows() == final_rows(past)


@pytest.mark.parametrize("mode", on_demand(("append", "history"), in_ci=("history",)))
def test_append_tables_are_checked(lake: Lake, tmp_path: Path, mode: str) -> None:
    feed = audited(lake, tmp_path, mode=mode, table_checks=[{"type": "row_count", "max": 8}])
    past = PlainHistory.of(7, 0)
    for key in range(8):
        past.insert(key)
    feed.take(past.events)
    past.insert(9)
    feed.write(past.events[-1:])
    report = feed.run()
    assert report.reason and "row_count: 9 rows" in report.reason
    assert len(feed.rows()) == 8
    feed.target["table_checks"] = [{"type": "row_count", "max": 9}]
    assert feed.run().outcome == "done"
    if mode == "history":
        columns = "_lakecdc_op, id, name, n, doc, _lakecdc_unchanged, _lakecdc_old_key"
        assert feed.rows(columns=columns) == event_rows(past.events)
    else:
        assert feed.rows() == final_rows(past)


def test_invalid_checks_are_refused_before_any_write(lake: Lake, tmp_path: Path) -> None:
    feed = Feed(lake, tmp_path, {})
    past = history(8)
    first, second = in_batches(past, 20)
    feed.take(first)
    feed.target |= {"publish": "audited", "checks": [{"type": "not_null", "columns": ["nowhere"]}]}
    before = metadata_location(lake, feed.table)
    feed.write(second)
    assert "refuses the check not_null(nowhere)" in str(feed.run().reason)
    assert metadata_location(lake, feed.table) == before
