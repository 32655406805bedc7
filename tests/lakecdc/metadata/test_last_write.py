"""The last write of a branch."""

from __future__ import annotations

from datetime import UTC, datetime

from lakecdc.metadata import names
from lakecdc.metadata.last_write import SnapshotFacts, last_write
from lakecdc.metadata.positions import Position, encode_idle

POSITION = Position("postgres", "c1", {"lsn": "0/9"}, "2026-01-01T05:00:00+00:00")
FED = SnapshotFacts(2, 1_767_247_200_000, "overwrite", {names.JOB: "ingest", names.POSITIONS: POSITION.encode()})
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
# somebody else's compaction says no job
COMPACTED = SnapshotFacts(3, 1_767_250_800_000, "replace", {})
CONVERTED = SnapshotFacts(4, 1_767_250_900_000, "delete", {names.JOB: "rewrite_delete_files"})
FOREIGN = SnapshotFacts(5, 1_767_250_900_123, "delete", {})


def test_there_is_none_of_an_empty_table_or_of_nothing_but_maintenance() -> None:
    assert last_write([], {}) is None
    assert last_write([CONVERTED, COMPACTED], {}) is None


def test_maintenance_is_no_write() -> None:
    found = last_write([CONVERTED, COMPACTED, FED], {})
    assert found is not None
    assert found.facts(NOON) == {
        "snapshot_id": "2",
        "written_at": "2026-01-01T06:00:00.000+00:00",
        "job": "ingest",
        "source_time": "2026-01-01T05:00:00+00:00",
        "position": {"source": "postgres", "identity": "c1", "lsn": "0/9"},
        "source_lag_seconds": 25200.0,
    }


def test_anybodys_write_counts_and_the_position_stays_that_of_ingestion() -> None:
    found = last_write([FOREIGN, COMPACTED, FED], {})
    assert found is not None
    assert (found.snapshot_id, found.job, found.written_at) == ("5", None, "2026-01-01T07:01:40.123+00:00")
    assert found.position is not None and found.position["lsn"] == "0/9"
    unfed = last_write([FOREIGN], {})
    assert unfed is not None and unfed.position is None and unfed.source_time is None
    assert unfed.source_lag_seconds(NOON) is None


def test_a_source_whose_clock_is_ahead_is_not_behind() -> None:
    found = last_write([FED], {})
    assert found is not None and found.source_lag_seconds(datetime(2026, 1, 1, tzinfo=UTC)) == 0.0


def test_a_quiet_run_moves_the_source_time_on() -> None:
    later = Position("postgres", "c1", {"lsn": "0/9"}, "2026-01-01T07:00:00+00:00")
    found = last_write([COMPACTED, FED], {names.IDLE_POSITION: encode_idle(2, later)})
    assert found is not None
    assert (found.written_at, found.source_time) == ("2026-01-01T06:00:00.000+00:00", "2026-01-01T07:00:00+00:00")
