"""Tags of past days and months, and atomic changes of tags and branches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakecdc.contract.errors import ConflictError, InputError, SpecError
from lakecdc.contract.expiring import TagSnapshotsOptions
from lakecdc.contract.spec import parse_spec
from lakecdc.iceberg.refs import Ref, read_refs
from lakecdc.iceberg.table import Snapshot
from lakecdc.maintain.tag import tag_snapshots
from lakecdc.metadata.periodic_tags import periodic_tags
from tests.conftest import Lake
from tests.lakecdc.maintain.support import append, create, head, metadata_location, run

NOW = datetime(2026, 3, 2, 1, 0, tzinfo=UTC)


def snapshots(*moments: str) -> list[Snapshot]:
    """Return the ancestors of a head, newest first, numbered by time."""
    times = [datetime.fromisoformat(moment).replace(tzinfo=UTC) for moment in moments]
    oldest_first = [Snapshot(n, int(t.timestamp() * 1000), "append", {}, None, n) for n, t in enumerate(times)]
    return oldest_first[::-1]


def tagged(options: TagSnapshotsOptions, ancestors: list[Snapshot], *refs: str) -> dict[str, int | None]:
    """Return the tags to create, with their snapshots, and to drop."""
    return periodic_tags(options, [(s.id, s.timestamp_ms) for s in ancestors], refs, NOW)


def test_each_past_day_gets_its_last_snapshot() -> None:
    ancestors = snapshots("2026-02-27T10:00", "2026-02-27T23:59:59", "2026-03-01T00:00", "2026-03-02T00:30")
    assert tagged(TagSnapshotsOptions(days=4), ancestors) == {
        "lakecdc-day-2026-03-01": 2,
        "lakecdc-day-2026-02-28": 1,
        "lakecdc-day-2026-02-27": 1,
    }


def test_tags_are_not_moved_and_are_dropped_once_too_old() -> None:
    ancestors = snapshots("2026-02-20T10:00", "2026-03-01T10:00")
    refs = ("lakecdc-day-2026-03-01", "lakecdc-day-2026-02-26", "day-2026-02-01", "lakecdc-positions", "main")
    assert tagged(TagSnapshotsOptions(days=2), ancestors, *refs) == {
        "lakecdc-day-2026-02-28": 0,
        "lakecdc-day-2026-02-26": None,
    }
    assert tagged(TagSnapshotsOptions(days=0), ancestors, *refs) == {
        "lakecdc-day-2026-03-01": None,
        "lakecdc-day-2026-02-26": None,
    }


def test_each_past_month_gets_its_last_snapshot() -> None:
    ancestors = snapshots("2025-11-30T10:00", "2025-12-31T23:00", "2026-02-10T10:00", "2026-03-01T10:00")
    assert tagged(TagSnapshotsOptions(days=0, months=4), ancestors, "lakecdc-month-2025-10") == {
        "lakecdc-month-2026-02": 2,
        "lakecdc-month-2026-01": 1,
        "lakecdc-month-2025-12": 1,
        "lakecdc-month-2025-11": 0,
        "lakecdc-month-2025-10": None,
    }


def test_days_begin_in_the_configured_time_zone() -> None:
    ancestors = snapshots("2026-02-28T22:30", "2026-02-28T23:30")
    assert tagged(TagSnapshotsOptions(days=2, zone="Europe/Berlin"), ancestors) == {
        "lakecdc-day-2026-03-01": 1,
        "lakecdc-day-2026-02-28": 0,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"days": -1}, "days is -1"),
        ({"zone": "Mars/Base"}, "not a time zone"),
        ({"changes": [{"action": "create", "name": "lakecdc-day-2026-01-01"}]}, "reserved"),
        ({"changes": [{"action": "drop", "name": "main"}]}, "reserved"),
        ({"changes": [{"action": "drop", "name": "a"}, {"action": "move", "name": "a"}]}, "more than once"),
        ({"changes": [{"action": "drop", "name": "a", "to": "1"}]}, "does not accept a snapshot"),
        ({"changes": [{"action": "paint", "name": "a"}]}, "action is 'paint'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    document = {"version": 1, "job": "tag_snapshots", "tables": ["a.b"], "options": options}
    catalog = {"name": "lake", "properties": {"type": "rest", "uri": "https://catalog.example.com"}}
    with pytest.raises(SpecError, match=message):
        parse_spec({**document, "catalog": catalog}, "tag_snapshots")


def test_tags_and_branches_are_changed_atomically(lake: Lake) -> None:
    name = create(lake, 2)
    assert run(lake, tag_snapshots, name).reason == "the table has no snapshot"
    append(lake, name, 0, 10)
    first = head(lake, name)
    lake.sql(f"ALTER TABLE lake.{name} CREATE BRANCH staging")
    lake.sql(f"INSERT INTO lake.{name}.branch_staging VALUES (100, 'x', 0)")
    moment = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    changes: list[dict[str, Any]] = [
        {"action": "create", "name": "closing", "to": moment},
        {"action": "create", "name": "audit", "kind": "branch", "to": str(first), "max_age": 3600},
        {"action": "fast_forward", "name": "main", "to": "staging"},
    ]
    location = metadata_location(lake, name)
    assert run(lake, tag_snapshots, name, changes=changes, dry_run=True).metrics["refs_created"] == 2
    with pytest.raises(InputError, match="does not exist"):
        run(lake, tag_snapshots, name, changes=[*changes, {"action": "drop", "name": "nowhere"}])
    assert metadata_location(lake, name) == location
    report = run(lake, tag_snapshots, name, changes=changes)
    assert report.outcome == "done" and report.metrics["changed"] == ["audit", "closing", "main"]
    refs = read_refs(lake.table(name))
    assert refs["closing"] == Ref(first, "tag") and refs["audit"].kind == "branch" and refs["audit"].max_age_ms
    assert len(lake.duckdb_rows(name)) == 11
    assert lake.pyiceberg().load_table(name).scan(snapshot_id=first).to_arrow().num_rows == 10
    # main has advanced, so staging is behind it
    append(lake, name, 200, 210)
    with pytest.raises(ConflictError, match="does not descend"):
        run(lake, tag_snapshots, name, changes=[{"action": "fast_forward", "name": "main", "to": "staging"}])
    closing = [{"action": "move", "name": "closing"}, {"action": "drop", "name": "audit"}]
    assert run(lake, tag_snapshots, name, changes=closing).metrics["refs_dropped"] == 1
    assert read_refs(lake.table(name))["closing"].snapshot_id == head(lake, name)
    assert run(lake, tag_snapshots, name).outcome == "nothing"
