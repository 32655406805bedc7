"""How many rows earlier runs left behind, told by summaries."""

from __future__ import annotations

import itertools

import pytest

from lakecdc.metadata.last_write import SnapshotFacts
from lakecdc.metadata.row_counts import EarlierRows, earlier_rows

_IDS = itertools.count(1)


def snapshot(run: str | None, records: int, job: str | None = "ingest", **totals: int) -> SnapshotFacts:
    counts = {"records": records, **{name.replace("_", "-"): count for name, count in totals.items()}}
    summary = {f"total-{name}": str(count) for name, count in counts.items()}
    if run:
        summary["app-id"] = run
    if job:
        summary["lakecdc.job"] = job
    return SnapshotFacts(next(_IDS), 0, "overwrite", summary)


def test_runs_are_compared_not_their_batches_nor_maintenance() -> None:
    history = [
        snapshot("now", 999),
        snapshot("compaction", 1, job="compact_data_files"),
        snapshot("c", 130),
        snapshot("c", 7),
        snapshot("b", 120),
        snapshot(None, 110, job=None),
        snapshot("too old", 5000),
    ]
    assert earlier_rows(history, 3) == EarlierRows(3, 120, 120)
    assert earlier_rows(history[:2], 3) is None


def test_maintenance_between_batches_of_one_run_makes_no_two_of_it() -> None:
    history = [snapshot("now", 1), snapshot("c", 130), snapshot("m", 1, job="sort_data_files"), snapshot("c", 7)]
    assert earlier_rows(history, 3) == EarlierRows(1, 130, 130)


def test_deleted_rows_do_not_count_as_far_as_deletes_tell() -> None:
    history = [snapshot("now", 1), snapshot("c", 100, position_deletes=10, equality_deletes=30)]
    found = earlier_rows(history, 3)
    assert found == EarlierRows(1, 60, 90)


@pytest.mark.parametrize(("rows", "change"), [(30, 0.5), (60, 0.0), (75, 0.0), (90, 0.0), (135, 0.5)])
def test_the_change_is_the_least_that_there_may_be(rows: int, change: float) -> None:
    assert EarlierRows(1, 60, 90).change(rows) == change


def test_rows_after_none_are_any_change() -> None:
    assert (EarlierRows(1, 0, 0).change(1), EarlierRows(1, 0, 0).change(0)) == (float("inf"), 0.0)
