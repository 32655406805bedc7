"""Past moments of tables, compared with their source at that time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lakecdc import moments
from lakecdc.iceberg.refs import read_refs
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import COLUMNS, Feed, in_batches
from tests.lakecdc.maintain.support import head, metadata_location, run
from tests.lakecdc.moments.support import Remembered, RememberedPlain, fed, iso, restored, shown


def check(feed: Feed, history: Remembered, moment: int, **options: Any) -> None:
    report = restored(feed.lake, feed.table, moment=iso(moment), **options)[0]
    assert report.outcome == "done", report.reason
    assert shown(feed, report.metrics["branch"]) == history.at(moment)
    of_branch = feed.lake.table(feed.table).head(report.metrics["branch"])
    assert of_branch and "added-equality-deletes" not in of_branch.summary
    rows = moments.read(
        feed.lake.spark, f"lake.{feed.table}", moment=iso(moment), history_table=f"lake.{feed.table}_history"
    )
    assert sorted(map(tuple, rows.selectExpr(*COLUMNS.split(", ")).collect()), key=str) == history.at(moment)


@pytest.mark.parametrize(
    ("target", "count"),
    [
        ({"format_version": 3, "partition_by": ["bucket(2, id)"]}, 2),
        pytest.param({"partition_by": ["bucket(2, id)"]}, 50, marks=pytest.mark.soak),
        pytest.param({"mode": "merge", "partition_by": ["truncate(2, name)"]}, 50, marks=pytest.mark.soak),
    ],
    ids=["upsert", "upsert-fifty", "merge-fifty"],
)
def test_any_moment_equals_the_source(lake: Lake, tmp_path: Path, target: dict[str, Any], count: int) -> None:
    feed, history = fed(lake, tmp_path, **target), Remembered.of(11, 15, keys=8)
    feed.take(history.events)
    begun, applied = history.moments()[-1], len(history.events)
    for truncated in (True, False):
        for number in range(16):
            history.statement(8)
            if truncated and number == 10:
                history.truncate()
        feed.take(history.events[applied:])
        applied = len(history.events)
        if truncated:
            for name in (feed.table, f"{feed.table}_history"):
                run(lake, compact_data_files, name, min_input_files=2)
            run(lake, rewrite_delete_files, feed.table)
    before = head(lake, feed.table)
    later = [moment for moment in history.moments()[:-1] if moment >= begun]
    for moment in random.Random(12).sample(later, min(count, len(later))):
        check(feed, history, moment)
    assert head(lake, feed.table) == before


def test_late_events_are_restored_at_their_moment(lake: Lake, tmp_path: Path) -> None:
    feed, history = fed(lake, tmp_path, partition_by=["bucket(2, id)"]), RememberedPlain(random.Random(21))
    for _ in range(40):
        history.statement(6)
    first, rest = history.events[:10], history.events[10:]
    feed.take(first)
    random.Random(22).shuffle(rest)
    # the newest event comes in the middle: later arrivals are late, some of them repeated
    newest = max(rest, key=lambda event: event["value"]["source"]["lsn"])
    rest.remove(newest)
    feed.take(rest[:8])
    feed.take([newest, *rest[8:16]])
    moment = history.moments()[24]
    incomplete = restored(lake, feed.table, moment=iso(moment))[0]
    assert incomplete.outcome == "done"
    feed.take(rest[16:] + rest[:4])
    check(feed, history, moment)
    again = restored(lake, feed.table, moment=iso(moment))[0]
    assert (again.outcome, again.metrics["branch"]) == ("nothing", incomplete.metrics["branch"])
    assert again.metrics["events_restored"] > incomplete.metrics["events_restored"]
    refs = read_refs(lake.table(feed.table))
    assert refs[again.metrics["branch"]].snapshot_id == refs[again.metrics["tag"]].snapshot_id
    assert not [name for name in refs if name.startswith("lakecdc_moment_")]


def test_one_table_without_the_moment_prevents_all_writes(lake: Lake, tmp_path: Path) -> None:
    feeds, histories = [fed(lake, tmp_path / name) for name in ("a", "b")], [Remembered.of(n, 20) for n in (31, 32)]
    for feed, history in zip(feeds, histories, strict=True):
        for events in in_batches(history, 10):
            feed.take(events)
    names = [feed.table for feed in feeds]
    moment = iso(histories[0].moments()[12])

    def refused(*tables: str, moment: str = moment, **options: Any) -> str:
        before = [metadata_location(lake, name) for name in names]
        reports = restored(lake, *(tables or names), moment=moment, **options)
        assert [metadata_location(lake, name) for name in names] == before
        assert {report.outcome for report in reports} <= {"failed", "skipped"}
        return next(report.reason or "" for report in reports if report.outcome == "failed")

    dry = restored(lake, *names, moment=moment, dry_run=True)
    assert [report.outcome for report in dry] == ["nothing"] * 2 and dry[0].metrics["events_restored"] > 0
    assert "has been read only through" in refused(moment="2030-01-01T00:00:00+00:00")
    assert "The table begins later" in refused(moment="2020-01-01T00:00:00+00:00")
    assert "no history table" in refused(history_tables={names[0]: f"{names[0]}_history"})
    lake.sql(f"ALTER TABLE lake.{names[1]} CREATE BRANCH taken")
    assert "already exists and is not this moment" in refused(branch="taken")
    assert [report.outcome for report in restored(lake, *names, moment=moment, branch="both")] == ["done"] * 2
    for feed, history in zip(feeds, histories, strict=True):
        assert shown(feed, "both") == history.at(histories[0].moments()[12])
    lake.sql(f"INSERT INTO lake.{names[1]}.branch_both SELECT * FROM lake.{names[1]} LIMIT 1")
    assert "already exists and is not this moment" in refused(branch="both")
    lake.sql(f"DELETE FROM lake.{names[1]}_history WHERE true")
    assert "events have since been removed" in refused(names[1])
    lake.sql(f"INSERT INTO lake.{names[0]}_history SELECT * FROM lake.{names[0]}_history LIMIT 1")
    assert "A writer other than ingestion modified the history table" in refused()
    lake.sql(f"UPDATE lake.{names[1]} SET n = n + 1 WHERE id < 3")
    # it matters only before the batch that read past the moment
    feeds[1].take(Remembered.of(32, 30).events[len(histories[1].events) :])
    assert "A writer other than ingestion modified it" in refused(names[1], moment=iso(histories[1].moments()[-1]))


def test_messages_in_quarantine_are_refused(lake: Lake, tmp_path: Path) -> None:
    feed, history = fed(lake, tmp_path), RememberedPlain.of(41, 20)
    feed.options = {"max_quarantined_fraction": 1.0}
    feed.take(history.events[:8])
    bad = history.events[10]
    feed.take([{**each, "value": "no envelope"} if each is bad else each for each in history.events[8:]])
    report = restored(lake, feed.table, moment=iso(history.moments()[15]))[0]
    assert report.failure_class == "bad input" and "quarantined messages" in (report.reason or "")
