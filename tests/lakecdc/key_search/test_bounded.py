"""Reads of tables with more deleted keys than fit into memory return the same rows and leave nothing behind."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lakecdc import changes
from lakecdc.iceberg import reader_memory
from lakecdc.key_search import bounded
from lakecdc.key_search.bounded import bounded_reads
from lakecdc.maintain.compact import compact_data_files
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import COLUMNS, in_batches
from tests.lakecdc.maintain.support import (
    append,
    append_parts,
    create,
    delete_by_key,
    duckdb_rows,
    files_on_disk,
    head,
    run,
    spark_rows,
)
from tests.lakecdc.moments.support import Remembered, fed, iso, restored, shown
from tests.versions import V3

Rows = list[tuple[Any, ...]]


class Heap:
    """A heap with no room for a single key after :meth:`shrink`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture) -> None:
        self._monkeypatch, self._log = monkeypatch, log

    def shrink(self) -> None:
        self._monkeypatch.setattr(reader_memory, "KEY_BYTES", 2**60)
        self._log.set_level(logging.INFO, bounded.__name__)

    def searches(self) -> int:
        """Return the number of searches for rows since the last call."""
        number = self._log.text.count("finding the deleted rows of")
        self._log.clear()
        return number


@pytest.fixture
def heap(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Heap:
    return Heap(monkeypatch, caplog)


@pytest.fixture
def name(lake: Lake, version: int) -> str:
    """Create a table with deletes of every kind, some of which apply to only some files."""
    name = create(lake, version, "bucket(2, id)")
    append_parts(lake, name, 0, 40, 2)
    lake.sql(f"DELETE FROM lake.{name} WHERE id BETWEEN 5 AND 8")
    delete_by_key(lake, name, [3, 7, 20])
    append(lake, name, 50, 60)
    delete_by_key(lake, name, [3, 4, 21, 52], text="new")
    return name


def everything(lake: Lake, name: str, version: int) -> set[str]:
    return files_on_disk(lake, name, ".puffin" if version == 3 else ".parquet")


@V3
def test_every_snapshot_can_be_read(lake: Lake, name: str, version: int, heap: Heap) -> None:
    then = head(lake, name)
    lake.sql(f"ALTER TABLE lake.{name} RENAME COLUMN v TO w")
    lake.sql(f"ALTER TABLE lake.{name} ADD COLUMN more int")
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 55")
    cases = ((None, "w"), (head(lake, name), "w"), (then, "v"))

    def rows(table: Any) -> list[Rows]:
        selects = [table.read(at, ["id", "d", text], f"{text} LIKE 'old%' OR id > 4") for at, text in cases]
        return [sorted(map(tuple, frame.collect())) for frame in selects]

    expected, before = rows(lake.table(name)), everything(lake, name, version)
    heap.shrink()
    with bounded_reads(lake.table(name)) as table:
        assert rows(table) == expected and len(expected[2]) == len(expected[0]) + 1
        # once for each snapshot
        assert heap.searches() == 2 and everything(lake, name, version) > before
    assert everything(lake, name, version) == before


@V3
def test_changes_can_be_read_and_files_compacted(lake: Lake, name: str, version: int, heap: Heap) -> None:
    first = lake.table(name).ancestors()
    since = list(first)[2].id
    delete_by_key(lake, name, [30, 53])

    def changed() -> Counter[tuple[Any, ...]]:
        return Counter(map(tuple, changes.read(lake.spark, f"lake.{name}", since=since, key=["id"]).collect()))

    rows, expected, before = spark_rows(lake, name), changed(), everything(lake, name, version)
    heap.shrink()
    assert changed() == expected and len(expected) > 5
    assert heap.searches() and everything(lake, name, version) == before
    report = run(lake, compact_data_files, name, min_input_files=2, verify="full")
    # one for the rewrite, one for the files that Iceberg's reader also reads
    assert report.outcome == "done" and heap.searches() == 2, report.reason
    assert spark_rows(lake, name) == rows == duckdb_rows(lake, name)


def test_moments_can_be_restored(lake: Lake, tmp_path: Path, heap: Heap) -> None:
    feed, history = fed(lake, tmp_path / "files", partition_by=["bucket(2, id)"]), Remembered.of(51, 30)
    for events in in_batches(history, 10, 20):
        feed.take(events)
    moment, then = history.moments()[24], f"{feed.table}_then"
    heap.shrink()
    (report,) = restored(lake, feed.table, moment=iso(moment), into={feed.table: then})
    assert report.outcome == "done" and heap.searches(), report.reason
    assert sorted(lake.duckdb_rows(then, COLUMNS), key=str) == history.at(moment)
    (report,) = restored(lake, feed.table, moment=iso(moment))
    assert shown(feed, report.metrics["branch"]) == history.at(moment)


def test_a_table_whose_deletes_fit_is_read_without_a_search(lake: Lake, heap: Heap) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 5)
    delete_by_key(lake, name, [3])
    with bounded_reads(lake.table(name)) as table:
        assert table.read().count() == 4 and not heap.searches()
