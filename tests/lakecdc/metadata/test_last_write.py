"""The last write of a branch, and the rows after earlier runs."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest

from lakecdc.metadata import names
from lakecdc.metadata.last_write import EarlierRows, SnapshotFacts, earlier_rows, last_write
from lakecdc.metadata.positions import Position, encode_idle

POSITION = Position("postgres", "c1", {"lsn": "0/9"}, "2026-01-01T05:00:00+00:00")
FED = SnapshotFacts(2, 1_767_247_200_000, "overwrite", {names.JOB: "ingest", names.POSITIONS: POSITION.encode()})
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
# another engine's compaction has no job
COMPACTED = SnapshotFacts(3, 1_767_250_800_000, "replace", {})
CONVERTED = SnapshotFacts(4, 1_767_250_900_000, "delete", {names.JOB: "rewrite_delete_files"})
FOREIGN = SnapshotFacts(5, 1_767_250_900_123, "delete", {})
_IDS = itertools.count(1)


def test_empty_and_only_maintained_tables_have_no_last_write() -> None:
    assert last_write([], {}) is None
    assert last_write([CONVERTED, COMPACTED], {}) is None


def test_maintenance_is_not_a_write() -> None:
    write = last_write([CONVERTED, COMPACTED, FED], {})
    assert write is not None
    assert write.facts(NOON) == {
        "snapshot_id": "2",
        "written_at": "2026-01-01T06:00:00.000+00:00",
        "job": "ingest",
        "source_time": "2026-01-01T05:00:00+00:00",
        "position": {"source": "postgres", "identity": "c1", "lsn": "0/9"},
        "source_lag_seconds": 25200.0,
    }


def test_every_write_counts_and_the_position_stays_that_of_ingestion() -> None:
    write = last_write([FOREIGN, COMPACTED, FED], {})
    assert write is not None
    assert (write.snapshot_id, write.job, write.written_at) == ("5", None, "2026-01-01T07:01:40.123+00:00")
    assert write.position is not None and write.position["lsn"] == "0/9"
    unfed = last_write([FOREIGN], {})
    assert unfed is not None and unfed.position is None and unfed.source_time is None
    assert unfed.facts(NOON)["source_lag_seconds"] is None


def test_a_source_whose_clock_is_ahead_is_not_behind() -> None:
    write = last_write([FED], {})
    assert write is not None and write.facts(datetime(2026, 1, 1, tzinfo=UTC))["source_lag_seconds"] == 0.0


def test_a_quiet_run_advances_the_source_time() -> None:
    later = Position("postgres", "c1", {"lsn": "0/9"}, "2026-01-01T07:00:00+00:00")
    write = last_write([COMPACTED, FED], {names.IDLE_POSITION: encode_idle(2, later)})
    assert write is not None
    assert (write.written_at, write.source_time) == ("2026-01-01T06:00:00.000+00:00", "2026-01-01T07:00:00+00:00")


def snapshot(run: str | None, records: int, job: str | None = "ingest", **totals: int) -> SnapshotFacts:
    counts = {"records": records, **{name.replace("_", "-"): count for name, count in totals.items()}}
    summary = {f"total-{name}": str(count) for name, count in counts.items()}
    if run:
        summary["app-id"] = run
    if job:
        summary["lakecdc.job"] = job
    return SnapshotFacts(next(_IDS), 0, "overwrite", summary)


def test_rows_are_compared_by_run_not_by_batch_or_maintenance() -> None:
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


def test_maintenance_between_batches_does_not_split_a_run() -> None:
    history = [snapshot("now", 1), snapshot("c", 130), snapshot("m", 1, job="sort_data_files"), snapshot("c", 7)]
    assert earlier_rows(history, 3) == EarlierRows(1, 130, 130)


def test_rows_known_to_be_deleted_do_not_count() -> None:
    history = [snapshot("now", 1), snapshot("c", 100, position_deletes=10, equality_deletes=30)]
    rows = earlier_rows(history, 3)
    assert rows == EarlierRows(1, 60, 90)


@pytest.mark.parametrize(("rows", "change"), [(30, 0.5), (60, 0.0), (75, 0.0), (90, 0.0), (135, 0.5)])
def test_the_change_is_the_smallest_possible_one(rows: int, change: float) -> None:
    assert EarlierRows(1, 60, 90).change(rows) == change


def test_first_rows_count_as_an_unlimited_change() -> None:
    assert (EarlierRows(1, 0, 0).change(1), EarlierRows(1, 0, 0).change(0)) == (float("inf"), 0.0)
