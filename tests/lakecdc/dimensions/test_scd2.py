"""Row versions, compared with the source's state at each moment."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.dimensions.versions import versions
from lakecdc.ingest.batch import CommitPlan
from lakecdc.ingest.change import Rows
from lakecdc.local_relation import local_relation
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.runtime.run import run as run_job
from lakecdc.runtime.run import work_of
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import COLUMNS, Feed, Loads
from tests.lakecdc.maintain.support import head, metadata_location, run
from tests.lakecdc.moments.support import Remembered, RememberedPlain, fed

OWN = "valid_from, valid_to, is_current"


def dimension(feed: Feed, name: str = "", **options: Any) -> TableReport:
    """Run the job as the job runner does."""
    return versions_of(feed.lake, feed.table, name, **options)


def versions_of(lake: Lake, table: str, name: str = "", **options: Any) -> TableReport:
    """Run the job on a table."""
    tables = {table: name or f"{table}_versions"}
    options = {"history_tables": {table: f"{table}_history"}, "dimensions": tables, **options}
    report = run_job(parse_spec(lake.spec("scd2", table, options=options)), work_of("scd2"))
    assert not report.error, report.error
    return report.tables[0]


def rows(feed: Feed, name: str = "") -> list[tuple[Any, ...]]:
    """Read a dimension with DuckDB."""
    return sorted(feed.lake.duckdb_rows(name or f"{feed.table}_versions", f"{COLUMNS}, {OWN}"), key=str)


def expected(history: Remembered) -> list[tuple[Any, ...]]:
    """Return the versions that follow from the source's states."""
    current: dict[int, tuple[tuple[Any, ...], int]] = {}
    versions: list[tuple[tuple[Any, ...], int, int | None]] = []
    for moment in history.moments():
        state = {row[0]: row for row in history.at(moment)}
        for key, (row, since) in list(current.items()):
            if state.get(key) != row:
                versions.append((row, since, moment))
                del current[key]
        for key, row in state.items():
            current.setdefault(key, (row, moment))
    versions += [(row, since, None) for row, since in current.values()]
    return sorted([(*row, at(since), at(until), until is None) for row, since, until in versions], key=str)


def at(moment: int | None) -> datetime | None:
    return None if moment is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment)


def play(history: Remembered, statements: int, *, truncate: bool = False) -> list[dict[str, Any]]:
    """Add random events."""
    begun = len(history.events)
    for number in range(statements):
        history.statement(6)
        if truncate and number == statements // 2:
            history.truncate()
    return history.events[begun:]


def move(history: Remembered) -> list[dict[str, Any]]:
    """Move a row from key to key, with a value that only its first event contains."""
    begun = len(history.events)
    history.insert(100)
    for key in (100, 101):
        history.change_key(key, key + 1)
    history.update(102, touch_doc=False)
    history.delete(102)
    return history.events[begun:]


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.soak), 3])
def test_versions_equal_the_source_and_a_rebuilt_dimension(lake: Lake, tmp_path: Path, version: int) -> None:
    feed, history = fed(lake, tmp_path, format_version=version), Remembered(random.Random(version))
    for truncate in (True, False):
        feed.take([*play(history, 20, truncate=truncate), *move(history)])
        report = dimension(feed)
        assert report.outcome == "done" and report.metrics["values_unknown"] == 0, report
        assert rows(feed) == expected(history)
        if truncate:
            run(lake, compact_data_files, f"{feed.table}_history", min_input_files=2)
            run(lake, compact_data_files, f"{feed.table}_versions", min_input_files=2)
    scratch = f"{feed.table}_scratch"
    assert dimension(feed, scratch).outcome == "done"
    assert rows(feed, scratch) == rows(feed)


def test_late_events_are_ordered(lake: Lake, tmp_path: Path) -> None:
    feed, history = fed(lake, tmp_path), RememberedPlain(random.Random(5))
    play(history, 40)
    first, rest = history.events[:8], history.events[8:]
    random.Random(6).shuffle(rest)
    for part in (first + rest[:16], rest[16:] + rest[:5]):
        feed.take(part)
        dimension(feed)
    assert rows(feed) == expected(history)


def test_a_void_version_is_removed(lake: Lake, tmp_path: Path) -> None:
    feed, history = fed(lake, tmp_path), Remembered(random.Random(10))
    history.insert(1)
    history.insert(2)
    feed.take(history.events)
    dimension(feed)
    assert [row[0] for row in rows(feed)] == [1, 2]
    history.delete(2)
    deletion, insertion = history.events[-1], history.events[-2]
    deletion["value"]["source"]["ts_ms"] = insertion["value"]["source"]["ts_ms"]
    feed.take([deletion])
    dimension(feed)
    assert [row[0] for row in rows(feed)] == [1]


def test_rows_missing_from_a_full_load_end_with_it(lake: Lake) -> None:
    loads = Loads(lake)
    name = loads.target.table

    def read(dimension: str) -> list[tuple[Any, ...]]:
        return sorted(lake.duckdb_rows(dimension, f"id, v, {OWN}"), key=str)

    def taken_in() -> list[tuple[Any, ...]]:
        assert versions_of(lake, name).outcome == "done"
        return [(*row[:2], row[4]) for row in read(f"{name}_versions")]

    loads.feed(loads.batch(10, {1: "a", 2: "b", 3: "c", 4: "d"}))
    assert taken_in() == [(1, "a", True), (2, "b", True), (3, "c", True), (4, "d", True)]
    # the table never had this row
    loads.feed(replace(loads.batch(12, {5: "z"}), commit=CommitPlan(replaces=True)), interrupted=True)
    loads.feed(loads.batch(15, {3: "c1"}, full_load=False))
    assert taken_in()[2:] == [(3, "c", False), (3, "c1", True), (4, "d", True)]
    # the source lost 2 and 4 and gained 5 while its log was not read
    loads.feed(replace(loads.batch(20, {1: "a", 3: "c2", 5: "e"}), commit=CommitPlan(replaces=True)))
    ended = [
        (1, "a", True),
        (2, "b", False),
        (3, "c", False),
        (3, "c1", False),
        (3, "c2", True),
        (4, "d", False),
        (5, "e", True),
    ]
    assert taken_in() == ended
    (loaded,) = {row[2] for row in read(f"{name}_versions") if row[1] in ("c2", "e")}
    assert {row[3] for row in read(f"{name}_versions") if row[1] in ("b", "c1", "d")} == {loaded}
    # knowledge of loads outlives the snapshots that record them
    before = head(lake, f"{name}_history")
    loads.feed(loads.batch(30, {2: "b2", 3: "c3"}, full_load=False))
    run(lake, expire_snapshots, f"{name}_history", retain_last=1, max_age=0.0)
    assert lake.table(f"{name}_history").snapshot(before) is None
    again = [*ended[:2], (2, "b2", True), *ended[2:4], (3, "c2", False), (3, "c3", True), *ended[5:]]
    assert taken_in() == again
    loads.feed(loads.batch(35, {4: "d2"}, full_load=False))
    assert taken_in() == sorted([*again, (4, "d2", True)])
    # a load without rows ends all versions
    empty = loads.batch(40, {1: ""})
    assert empty.rows is not None
    loads.feed(replace(empty, rows=Rows(empty.rows.frame.where("false")), commit=CommitPlan(replaces=True)))
    assert not any(current for *_, current in taken_in())


def test_a_microsecond_in_a_row_with_a_map_makes_a_version(lake: Lake) -> None:
    events = lake.sql("""
        SELECT 'u' op, struct(1 AS id) key, struct(1 AS id, timestamp_micros(at) AS at, map('a', x) AS m) row,
            CAST(NULL AS array<string>) open, CAST(NULL AS struct<id: int>) old_key, order,
            timestamp_seconds(int(order)) source_time
        FROM VALUES (1, 0.0D, '1'), (2, 0.0D, '2'), (2, -0.0D, '3'), (2, -0.0D, '4') AS t(at, x, order)
    """).localCheckpoint()
    emptied = local_relation(lake.spark, [], "order string, source_time timestamp, through string")
    new_versions = versions(events, emptied)[0].select(F.unix_seconds("valid_from"), F.unix_micros("row.at"))
    assert sorted(map(tuple, new_versions.collect())) == [(1, 1), (2, 2), (3, 2)]


def test_a_run_without_new_events_writes_nothing(lake: Lake, tmp_path: Path) -> None:
    feed, history = fed(lake, tmp_path), Remembered(random.Random(7))
    feed.take(play(history, 10))
    dry = dimension(feed, dry_run=True)
    assert dry.outcome == "nothing" and dry.metrics["versions"] == len(expected(history))
    assert dimension(feed).metrics["events"] == len(feed.rows(f"{feed.table}_history"))
    before = metadata_location(lake, f"{feed.table}_versions")
    assert dimension(feed).outcome == "nothing"
    run(lake, compact_data_files, f"{feed.table}_history", min_input_files=1)
    assert dimension(feed).outcome == "nothing"
    assert metadata_location(lake, f"{feed.table}_versions") == before


def test_unsuitable_tables_are_refused(lake: Lake, tmp_path: Path) -> None:
    feed, history = fed(lake, tmp_path), Remembered(random.Random(8))
    feed.take(play(history, 10))
    assert "options.history_tables" in (dimension(feed, history_tables={}).reason or "")
    assert "options.dimensions" in (dimension(feed, dimensions={}).reason or "")
    assert "is not a dimension" in (dimension(feed, feed.table).reason or "")
    dimension(feed)
    other = fed(lake, tmp_path / "other")
    other.take(play(Remembered(random.Random(9)), 5))
    assert "does not contain changes" in (dimension(other, f"{feed.table}_versions").reason or "")
    lake.sql(f"DELETE FROM lake.{feed.table}_history WHERE id = {history.events[0]['key']['id']}")
    feed.take(play(history, 5))
    assert "were removed" in (dimension(feed).reason or "")
