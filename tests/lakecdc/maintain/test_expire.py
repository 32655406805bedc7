"""Expiry deletes unneeded snapshots and files, and keeps tags, source positions and the snapshots of running jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from lakecdc.contract.errors import SpecError, UnsupportedError
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.refs import read_refs
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.maintain.start_tag import start_tag
from lakecdc.metadata import names
from lakecdc.metadata.consumers import Consumer
from lakecdc.metadata.positions import nearest_carrier
from tests.conftest import Lake
from tests.lakecdc.maintain.support import (
    append,
    append_parts,
    create,
    delete_by_key,
    duckdb_rows,
    files_on_disk,
    fill,
    head,
    live_files,
    manifests,
    metadata_location,
    run,
    snapshots,
)
from tests.versions import V3


def expire_all(lake: Lake, name: str, **options: Any) -> TableReport:
    """Run the job with an age that makes everything old enough."""
    now = datetime.now(UTC).isoformat()
    return run(lake, expire_snapshots, name, **{"older_than": now, "retain_last": 1} | options)


@V3
def test_files_of_expired_snapshots_are_deleted_and_live_files_stay(lake: Lake, version: int) -> None:
    name = create(lake, version, "d")
    fill(lake, name)
    delete_by_key(lake, name, range(10), "new")
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 100")
    old = live_files(lake, name)
    run(lake, compact_data_files, name)
    before = duckdb_rows(lake, name)
    report = expire_all(lake, name)
    assert report.outcome == "done", report.reason
    assert report.metrics["snapshots_expired"] == 7
    assert report.metrics["deleted_data_files"] == 12
    assert report.metrics["deleted_position_delete_files"] == 1
    assert snapshots(lake, name) == [head(lake, name)]
    data = {f for f in files_on_disk(lake, name) if "/data/" in f}
    assert not data & {f for f in old if f not in live_files(lake, name)}
    assert live_files(lake, name) <= data | files_on_disk(lake, name, ".puffin")
    assert duckdb_rows(lake, name) == before
    assert len(files_on_disk(lake, name, ".avro")) == len(manifests(lake, name)) + 1
    assert expire_all(lake, name).outcome == "nothing"


def test_defaults_follow_retain_last_and_the_table_property(lake: Lake) -> None:
    name = create(lake, 2)
    fill(lake, name, files=6, rows=10)
    report = run(lake, expire_snapshots, name)
    assert report.outcome == "nothing" and "can expire" in (report.reason or "")
    assert len(snapshots(lake, name)) == 6
    assert expire_all(lake, name, retain_last=4).metrics["snapshots_expired"] == 2
    assert len(snapshots(lake, name)) == 4
    lake.table(name).update_properties({"history.expire.min-snapshots-to-keep": "3"})
    assert expire_all(lake, name, retain_last=1).metrics["snapshots_expired"] == 1
    assert len(snapshots(lake, name)) == 3


def test_dry_run_counts_and_changes_nothing(lake: Lake) -> None:
    name = create(lake, 3)
    fill(lake, name)
    run(lake, compact_data_files, name)
    before, on_disk = metadata_location(lake, name), files_on_disk(lake, name)
    report = expire_all(lake, name, dry_run=True)
    assert report.outcome == "nothing"
    assert report.metrics["snapshots_expired"] == 5
    assert (report.metrics["data_files_at_most"], report.metrics["manifest_lists"]) == (5, 5)
    assert (metadata_location(lake, name), files_on_disk(lake, name)) == (before, on_disk)
    done = expire_all(lake, name)
    assert done.metrics["deleted_data_files"] == 5
    assert done.metrics["deleted_manifests"] == report.metrics["manifests"]


def test_tagged_snapshot_can_still_be_read(lake: Lake) -> None:
    name = create(lake, 2)
    fill(lake, name)
    lake.sql(f"ALTER TABLE lake.{name} CREATE TAG month")
    run(lake, compact_data_files, name)
    append(lake, name, 1000, 1010)
    assert expire_all(lake, name).outcome == "done"
    assert sum(id for (id,) in lake.duckdb_rows(name, "id", "month")) == sum(range(500))
    assert len(duckdb_rows(lake, name)) == 510


def test_the_carrier_of_positions_stays_reachable(lake: Lake) -> None:
    name = create(lake, 3)
    append(lake, name, 0, 100)
    delete_by_key(lake, name, range(3), "a", positions="p1")
    delete_by_key(lake, name, range(3), "b", positions="p2")
    carrier = head(lake, name)
    run(lake, compact_data_files, name, min_input_files=2)
    append(lake, name, 1000, 1010)
    report = expire_all(lake, name)
    assert report.metrics["snapshots_expired"] == 2
    # the carrier, and the compaction that leads to it
    assert report.metrics["snapshots_kept_for_positions"] == 2
    table = lake.table(name)
    nearest = nearest_carrier((s.id, s.summary) for s in table.ancestors())
    assert nearest is not None and (nearest.snapshot_id, nearest.text) == (carrier, "p2")
    assert read_refs(table)[names.POSITIONS_TAG].snapshot_id == carrier
    delete_by_key(lake, name, range(3), "c", positions="p3")
    moved = head(lake, name)
    assert expire_all(lake, name).outcome == "done"
    assert read_refs(lake.table(name))[names.POSITIONS_TAG].snapshot_id == moved
    assert snapshots(lake, name) == [moved]


def test_ancestry_of_a_running_jobs_tag_is_kept(lake: Lake) -> None:
    name = create(lake, 2)
    fill(lake, name, files=6, rows=10)
    table, ancestry = lake.table(name), snapshots(lake, name)[3:]
    start = table.snapshot(ancestry[0])
    assert start is not None
    with start_tag(table, start, "test"):
        report = expire_all(lake, name)
        assert report.metrics["snapshots_expired"] == 3
        assert report.metrics["snapshots_kept_for_jobs"] == 1
        assert [s.id for s in reversed(list(lake.table(name).ancestors()))] == ancestry
    assert expire_all(lake, name).metrics["snapshots_expired"] == 2


def test_tags_of_dead_jobs_are_removed(lake: Lake) -> None:
    name = create(lake, 2)
    fill(lake, name, files=3, rows=10)
    first = snapshots(lake, name)[0]
    lake.table(name).java.manageSnapshots().createTag("lakecdc-job-dead", first).setMaxRefAgeMs(
        "lakecdc-job-dead", 1
    ).commit()
    dry = expire_all(lake, name, dry_run=True)
    assert dry.metrics["stale_job_tags"] == 1 and dry.metrics["snapshots_expired"] == 2
    assert "lakecdc-job-dead" in read_refs(lake.table(name))
    assert expire_all(lake, name).metrics["snapshots_expired"] == 2
    assert set(read_refs(lake.table(name))) == {"main"}


def test_a_branch_whose_retention_loses_positions_is_refused(lake: Lake) -> None:
    name = create(lake, 2)
    delete_by_key(lake, name, range(3), "a", positions="p1")
    append_parts(lake, name, 10, 30, 2)
    lake.table(name).java.manageSnapshots().setMaxSnapshotAgeMs("main", 1).setMinSnapshotsToKeep("main", 1).commit()
    with pytest.raises(UnsupportedError, match="retention of its branch"):
        expire_all(lake, name)
    assert len(snapshots(lake, name)) == 3


def test_shared_files_and_invalid_times_are_refused(lake: Lake) -> None:
    name = create(lake, 2, gc__enabled="false")
    append(lake, name, 0, 10)
    with pytest.raises(UnsupportedError, match="gc.enabled"):
        expire_all(lake, name)
    with pytest.raises(SpecError, match="not an ISO-8601 time"):
        expire_all(lake, name, older_than="yesterday")


def test_a_table_without_snapshot_is_left_alone(lake: Lake) -> None:
    assert expire_all(lake, create(lake, 3)).reason == "the table has no snapshot"


def test_unread_snapshots_are_kept_until_their_consumer_is_silent(lake: Lake) -> None:
    name = create(lake, 2)
    append_parts(lake, name, 0, 40, 4)
    ids = snapshots(lake, name)
    consumer = Consumer("mart", ids[1], 3600, datetime.now(UTC))
    lake.table(name).update_properties({consumer.property_name: consumer.encode()})
    report = expire_all(lake, name)
    assert report.outcome == "done", report.reason
    assert report.metrics["snapshots_kept_for_consumers"] == 2 and report.metrics["silent_consumers"] == []
    assert snapshots(lake, name) == ids[1:]
    # a consumer with an unreadable position keeps the snapshots after its tag, or all without a tag
    lake.table(name).update_properties({"lakecdc.consumer.odd": "{}"})
    report = expire_all(lake, name)
    assert (report.outcome, report.metrics["unreadable_consumers"]) == ("nothing", ["lakecdc.consumer.odd"])
    assert "kept snapshots for unreadable consumers (lakecdc.consumer.odd)" in str(report.reason)
    lake.table(name).java.manageSnapshots().createTag("lakecdc-consumer-odd", ids[2]).commit()
    silent = replace(consumer, limit=0.001)
    lake.table(name).update_properties({consumer.property_name: silent.encode()})
    report = expire_all(lake, name)
    assert report.outcome == "done" and "unreadable consumers" in str(report.reason)
    assert snapshots(lake, name) == ids[2:]
    lake.table(name).java.updateProperties().remove("lakecdc.consumer.odd").commit()
    lake.table(name).java.manageSnapshots().removeTag("lakecdc-consumer-odd").commit()
    report = expire_all(lake, name)
    assert report.metrics["silent_consumers"] == ["mart"]
    assert snapshots(lake, name) == ids[3:]
