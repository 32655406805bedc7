"""Rows deleted by key during a rewrite stay deleted, although Iceberg would drop the deletes."""

from __future__ import annotations

import pytest

from lakecdc.iceberg.rewrite_guard import EqualityDeleteGuard
from lakecdc.maintain.compact import compact_data_files
from tests.conftest import Lake
from tests.lakecdc.maintain.support import (
    append,
    count,
    create,
    delete_by_key,
    duckdb_rows,
    files_on_disk,
    fill,
    key_columns,
    live_files,
    meanwhile,
    run,
    spark_rows,
)
from tests.on_demand import on_demand
from tests.versions import V2, V3


def ids(lake: Lake, name: str) -> set[int]:
    """Return the ids of all rows, after checking that two readers agree."""
    all_ids = [row[0] for row in spark_rows(lake, name)]
    if "d" not in key_columns(lake.table(name)):
        # DuckDB 1.5.5 fails on equality deletes by two columns if one is an identity partition
        assert all_ids == [row[0] for row in duckdb_rows(lake, name)]
    assert len(all_ids) == len(set(all_ids))
    return set(all_ids)


@V2
@pytest.mark.parametrize("text", on_demand((None, "new"), in_ci=("new",)))
def test_concurrent_deletes_still_apply(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int, text: str | None
) -> None:
    name = create(lake, version, "bucket(2, id)")
    fill(lake, name)
    meanwhile(monkeypatch, "rewrite_before_commit", lambda: delete_by_key(lake, name, range(50), text))
    assert run(lake, compact_data_files, name).outcome == "done"
    assert count(lake, name, 2) > 0
    assert ids(lake, name) == set(range(0 if text else 50, 500))
    assert sum(value.startswith("new") for _, value, _ in duckdb_rows(lake, name)) == (50 if text else 0)


def delete_then_append(lake: Lake, name: str) -> None:
    """Make two commits after which no remaining data file is as old as the equality delete."""
    delete_by_key(lake, name, range(50))
    append(lake, name, 1000, 1010)


@pytest.mark.soak
@V3
def test_iceberg_alone_drops_the_delete(lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """If this ever fails (apache/iceberg #10312), the guard can be removed."""
    monkeypatch.setattr(EqualityDeleteGuard, "validate", lambda self, ancestors: True)
    name = create(lake, version)
    fill(lake, name)
    meanwhile(monkeypatch, "rewrite_before_commit", lambda: delete_then_append(lake, name))
    run(lake, compact_data_files, name)
    assert count(lake, name, 2) == 0
    assert set(range(50)) <= ids(lake, name), "deleted rows were expected to come back without the guard"


@V2
def test_the_guard_refuses_where_iceberg_would_drop_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    name = create(lake, version)
    fill(lake, name)
    meanwhile(monkeypatch, "rewrite_before_commit", lambda: delete_then_append(lake, name))
    report = run(lake, compact_data_files, name)
    assert report.outcome == "conflict" and "still needed" in (report.reason or "")
    assert {row[0] for row in duckdb_rows(lake, name)} == set(range(50, 500)) | set(range(1000, 1010))
    assert files_on_disk(lake, name) == live_files(lake, name)
    assert run(lake, compact_data_files, name).outcome == "done"
    assert ids(lake, name) == set(range(50, 500)) | set(range(1000, 1010))


@pytest.mark.soak
def test_an_older_file_that_stays_lets_the_commit_through(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2, "d")
    fill(lake, name)
    lake.sql(f"INSERT INTO lake.{name} VALUES (900, 'alone', 7)")
    meanwhile(monkeypatch, "rewrite_before_commit", lambda: delete_then_append(lake, name))
    assert run(lake, compact_data_files, name).outcome == "done"
    assert ids(lake, name) == set(range(50, 500)) | {900} | set(range(1000, 1010))


def test_deletes_of_rows_that_change_their_spec_are_a_conflict(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2, "bucket(2, id)")
    fill(lake, name)
    old = lake.table(name).java.spec().specId()
    lake.sql(f"ALTER TABLE lake.{name} ADD PARTITION FIELD truncate(100, id)")
    meanwhile(monkeypatch, "rewrite_before_commit", lambda: delete_by_key(lake, name, range(50), spec_id=old))
    report = run(lake, compact_data_files, name)
    assert report.outcome == "conflict" and "spec" in (report.reason or "")
    assert ids(lake, name) == set(range(50, 500))
