"""Expiry is one commit, checks again before it deletes files, and makes no call to Java per snapshot."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.jvm import jvm
from lakecdc.iceberg.refs import Ref, change_refs, read_refs
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.metadata import names
from lakecdc.metadata.consumers import Consumer
from tests.conftest import Lake
from tests.lakecdc.iceberg.java_commands import sent_commands
from tests.lakecdc.maintain.support import (
    append,
    append_parts,
    create,
    delete_by_key,
    duckdb_rows,
    files_on_disk,
    fill,
    head,
    meanwhile,
    run,
    snapshots,
)
from tests.on_demand import on_demand


def options(**more: Any) -> dict[str, Any]:
    """Return options with which everything is old enough."""
    return {"older_than": datetime.now(UTC).isoformat(), "retain_last": 1} | more


def register(lake: Lake, name: str, snapshot_id: int) -> None:
    """Register a consumer from a session that has not seen the expiry."""
    consumer = Consumer("mart", snapshot_id, 3600, datetime.now(UTC))
    lake.table(name).update_properties({consumer.property_name: consumer.encode()})


def make_snapshots(lake: Lake, name: str, count: int) -> None:
    """Commit ``count`` snapshots at once, each of which removes the file of the previous one, then real rows."""
    table = lake.table(name)
    files, transaction = jvm(lake.spark).org.apache.iceberg.DataFiles, table.java.newTransaction()
    last = None
    for number in range(count):
        path = f"{table.location}/data/gone-{number}.parquet"
        file = files.builder(table.java.spec()).withPath(path).withFileSizeInBytes(9).withRecordCount(1).build()
        change = transaction.newOverwrite().addFile(file)
        (change.deleteFile(last) if last else change).commit()
        last = file
    transaction.newDelete().deleteFile(last).commit()
    transaction.commitTransaction()
    append(lake, name, 0, 10)


def test_tag_and_expiry_are_one_commit(lake: Lake) -> None:
    name = create(lake, 3)
    append(lake, name, 0, 10)
    delete_by_key(lake, name, range(3), "a", positions="p1")
    carrier = head(lake, name)
    append_parts(lake, name, 10, 30, 2)
    commits, rows = len(files_on_disk(lake, name, ".metadata.json")), duckdb_rows(lake, name)
    assert run(lake, expire_snapshots, name, **options()).metrics["snapshots_expired"] == 1
    assert len(files_on_disk(lake, name, ".metadata.json")) == commits + 1
    assert read_refs(lake.table(name))[names.POSITIONS_TAG] == Ref(carrier, "tag")
    assert duckdb_rows(lake, name) == rows


@pytest.mark.parametrize("who", on_demand(("consumer", "tag"), in_ci=("consumer",)))
def test_files_needed_before_the_commit_stay(lake: Lake, monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    name = create(lake, 2)
    fill(lake, name, files=4, rows=10)
    ids = snapshots(lake, name)
    if who == "consumer":
        meanwhile(monkeypatch, "before_expiry", lambda: register(lake, name, ids[1]))
    else:
        meanwhile(monkeypatch, "before_expiry", lambda: change_refs(lake.table(name), {"x": Ref(ids[1], "tag")}))
    report = run(lake, expire_snapshots, name, **options())
    retained = ids[1:] if who == "consumer" else [ids[1], ids[3]]
    assert snapshots(lake, name) == retained
    assert report.metrics["snapshots_expired"] == 4 - len(retained)
    assert lake.pyiceberg().load_table(name).scan(snapshot_id=ids[1]).to_arrow().num_rows == 20


def test_files_needed_since_the_commit_are_not_removed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2)
    fill(lake, name, files=3, rows=10)
    lake.sql(f"INSERT OVERWRITE lake.{name} SELECT 1L, 'x', 1")
    ids, on_disk = snapshots(lake, name), files_on_disk(lake, name, "")
    meanwhile(monkeypatch, "after_expiry", lambda: register(lake, name, ids[1]))
    with pytest.raises(ConflictError, match="consumer mart.* No file was deleted"):
        run(lake, expire_snapshots, name, **options())
    assert snapshots(lake, name) == ids[3:]
    assert on_disk <= files_on_disk(lake, name, "")
    assert duckdb_rows(lake, name) == [(1, "x", 1)]


def test_expiry_makes_no_call_to_java_per_snapshot(lake: Lake) -> None:
    calls = []
    for count in (5, 10, 30):
        name = create(lake, 2)
        make_snapshots(lake, name, count)
        with sent_commands(lake.spark) as sent:
            report = run(lake, expire_snapshots, name, **options(retain_last=3))
        calls.append(len(sent))
        assert report.metrics["snapshots_expired"] == count - 1
        assert report.metrics["deleted_manifest_lists"] == count - 1
        assert len(duckdb_rows(lake, name)) == 10
    # the first run looks up names that are cached afterwards
    assert abs(calls[2] - calls[1]) < 10, calls


def with_older_snapshots(lake: Lake, name: str, count: int) -> str:
    """Register the table under another name, with ``count`` snapshots of the same files before its head.

    Iceberg would need minutes for these commits.
    """
    metadata = Path(lake.pyiceberg().load_table(name).metadata_location.removeprefix("file:"))
    document = json.loads(metadata.read_text())
    (newest,) = document["snapshots"]
    manifests, last = Path(newest["manifest-list"].removeprefix("file:")), None
    for number in range(count):
        copy = manifests.with_name(f"snap-{number}.avro")
        shutil.copyfile(manifests, copy)
        older = {**newest, "snapshot-id": 1000 + number, "manifest-list": f"file:{copy}"}
        older["timestamp-ms"] = newest["timestamp-ms"] - 1000 * (count - number)
        document["snapshots"].append(older if last is None else {**older, "parent-snapshot-id": last})
        last = older["snapshot-id"]
    newest["parent-snapshot-id"] = last
    extended = metadata.with_name("00009-made.metadata.json")
    extended.write_text(json.dumps(document))
    other = lake.new_name("old")
    lake.pyiceberg().register_table(other, f"file:{extended}")
    return other


@pytest.mark.soak
def test_five_thousand_snapshots_expire(lake: Lake) -> None:
    """The driver's JVM has a heap of 2 GB."""
    assert jvm(lake.spark).java.lang.Runtime.getRuntime().maxMemory() < 2.1 * 1024**3
    name = create(lake, 2)
    append(lake, name, 0, 10)
    name = with_older_snapshots(lake, name, 4999)
    report = run(lake, expire_snapshots, name, **options(retain_last=100))
    assert (report.metrics["snapshots"], report.metrics["snapshots_expired"]) == (5000, 4900)
    assert report.metrics["deleted_manifest_lists"] == 4900 and report.metrics["deleted_manifests"] == 0
    assert len(snapshots(lake, name)) == 100 and len(duckdb_rows(lake, name)) == 10
