"""Versions of rows, against what the source held at each moment."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.maintain.compact import compact_data_files
from lakecdc.run import run as run_job
from lakecdc.run import work_of
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import COLUMNS, Feed
from tests.lakecdc.maintain.support import metadata_location, run
from tests.lakecdc.moments.support import Remembered, RememberedPlain, fed

OWN = "valid_from, valid_to, is_current"


def dimension(feed: Feed, name: str = "", **options: Any) -> TableReport:
    """Run the job as its frame would."""
    tables = {feed.table: name or f"{feed.table}_versions"}
    options = {"history_tables": {feed.table: f"{feed.table}_history"}, "dimensions": tables, **options}
    report = run_job(parse_spec(feed.lake.spec("scd2", feed.table, options=options)), work_of("scd2"))
    assert not report.error, report.error
    return report.tables[0]


def rows(feed: Feed, name: str = "") -> list[tuple[Any, ...]]:
    """What DuckDB reads of a dimension."""
    return sorted(feed.lake.duckdb_rows(name or f"{feed.table}_versions", f"{COLUMNS}, {OWN}"), key=str)


def expected(history: Remembered) -> list[tuple[Any, ...]]:
    """Versions as the states of the source tell them, moment after moment."""
    held: dict[int, tuple[tuple[Any, ...], int]] = {}
    found: list[tuple[tuple[Any, ...], int, int | None]] = []
    for moment in history.moments():
        state = {row[0]: row for row in history.at(moment)}
        for key, (row, since) in list(held.items()):
            if state.get(key) != row:
                found.append((row, since, moment))
                del held[key]
        for key, row in state.items():
            held.setdefault(key, (row, moment))
    found += [(row, since, None) for row, since in held.values()]
    return sorted([(*row, at(since), at(until), until is None) for row, since, until in found], key=str)


def at(moment: int | None) -> datetime | None:
    return None if moment is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment)


def play(history: Remembered, statements: int, *, truncate: bool = False) -> list[dict[str, Any]]:
    """Some more events."""
    begun = len(history.events)
    for number in range(statements):
        history.statement(6)
        if truncate and number == statements // 2:
            history.truncate()
    return history.events[begun:]


def move(history: Remembered) -> list[dict[str, Any]]:
    """A row goes from key to key, with a value that only its first event tells."""
    begun = len(history.events)
    history.insert(100)
    for key in (100, 101):
        history.change_key(key, key + 1)
    history.update(102, touch_doc=False)
    history.delete(102)
    return history.events[begun:]


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.soak), 3])
def test_versions_are_those_of_the_source_and_of_a_dimension_from_scratch(
    lake: Lake, tmp_path: Path, version: int
) -> None:
    feed, history = fed(lake, tmp_path, format_version=version), Remembered(random.Random(version))
    for truncate in (False, True, False):
        feed.take([*play(history, 20, truncate=truncate), *move(history)])
        report = dimension(feed)
        assert report.outcome == "done" and report.metrics["values_unknown"] == 0, report
        assert rows(feed) == expected(history)
        run(lake, compact_data_files, f"{feed.table}_history", min_input_files=2)
        run(lake, compact_data_files, f"{feed.table}_versions", min_input_files=2)
    scratch = f"{feed.table}_scratch"
    assert dimension(feed, scratch).outcome == "done"
    assert rows(feed, scratch) == rows(feed)


def test_late_events_find_their_place(lake: Lake, tmp_path: Path) -> None:
    feed, history = fed(lake, tmp_path), RememberedPlain(random.Random(5))
    play(history, 40)
    first, rest = history.events[:8], history.events[8:]
    random.Random(6).shuffle(rest)
    feed.take(first)
    dimension(feed)
    for part in (rest[:12], rest[12:24], rest[24:] + rest[:5]):
        feed.take(part)
        dimension(feed)
    assert rows(feed) == expected(history)


def test_a_version_that_has_turned_out_to_be_none_goes(lake: Lake, tmp_path: Path) -> None:
    feed, history = fed(lake, tmp_path), Remembered(random.Random(10))
    history.insert(1)
    history.insert(2)
    feed.take(history.events)
    dimension(feed)
    assert [row[0] for row in rows(feed)] == [1, 2]
    history.delete(2)
    gone, came = history.events[-1], history.events[-2]
    gone["value"]["source"]["ts_ms"] = came["value"]["source"]["ts_ms"]
    feed.take([gone])
    dimension(feed)
    assert [row[0] for row in rows(feed)] == [1]


def test_nothing_new_writes_nothing(lake: Lake, tmp_path: Path) -> None:
    feed, history = fed(lake, tmp_path), Remembered(random.Random(7))
    feed.take(play(history, 10))
    told = dimension(feed, dry_run=True)
    assert told.outcome == "nothing" and told.metrics["versions"] == len(expected(history))
    assert dimension(feed).metrics["events"] == len(feed.rows(f"{feed.table}_history"))
    before = metadata_location(lake, f"{feed.table}_versions")
    assert dimension(feed).outcome == "nothing"
    run(lake, compact_data_files, f"{feed.table}_history", min_input_files=1)
    assert dimension(feed).outcome == "nothing"
    assert metadata_location(lake, f"{feed.table}_versions") == before


def test_what_does_not_fit_is_refused(lake: Lake, tmp_path: Path) -> None:
    feed, history = fed(lake, tmp_path), Remembered(random.Random(8))
    feed.take(play(history, 10))
    assert "options.history_tables" in (dimension(feed, history_tables={}).reason or "")
    assert "options.dimensions" in (dimension(feed, dimensions={}).reason or "")
    assert "no table of versions" in (dimension(feed, feed.table).reason or "")
    dimension(feed)
    other = fed(lake, tmp_path / "other")
    other.take(play(Remembered(random.Random(9)), 5))
    assert "something else" in (dimension(other, f"{feed.table}_versions").reason or "")
    lake.sql(f"DELETE FROM lake.{feed.table}_history WHERE id = {history.events[0]['key']['id']}")
    feed.take(play(history, 5))
    assert "have been removed" in (dimension(feed).reason or "")
