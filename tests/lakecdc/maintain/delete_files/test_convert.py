"""A conversion keeps the rows for every reader, and leaves no equality deletes and one delete file per data file."""

from __future__ import annotations

import pytest

from lakecdc.metadata.debt import NOTHING
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import (
    change,
    convert,
    create,
    insert,
    pyiceberg_rows,
    run,
)
from tests.lakecdc.maintain.support import count
from tests.versions import V2, V3

LAYOUTS = pytest.mark.parametrize("layout", ["bucket(4, id)", pytest.param("", marks=pytest.mark.soak)])


def upserted(lake: Lake, version: int, layout: str = "") -> str:
    """Create 1,000 rows in a few files, upsert keys 900 to 1,099, then delete 0 to 49."""
    name = create(lake, "id bigint NOT NULL, v string", version, layout)
    insert(lake, name, "SELECT id, concat('old', id) AS v FROM range(1000)", files=3)
    keys = "SELECT id FROM range(900, 1100)"
    change(lake, name, ["id"], keys, f"SELECT id, concat('new', id) AS v FROM ({keys})")
    change(lake, name, ["id"], "SELECT id FROM range(50)")
    return name


@LAYOUTS
@pytest.mark.parametrize("version", [2, 3])
def test_upserts_and_deletes_are_converted(lake: Lake, version: int, layout: str) -> None:
    name = upserted(lake, version, layout)
    report = convert(lake, name)
    assert report.metrics["positions"] == 150
    assert report.metrics["equality_deletes"] == 250
    assert report.metrics["scopes"] == (4 if layout else 1)
    kind = "deletion_vectors_added" if version == 3 else "delete_files_added"
    assert report.metrics[kind] == count(lake, name, 1) > 0
    assert report.metrics["verified"]["mode"] == "full"
    assert report.metrics["verified"]["files"] == report.metrics["verified"]["of"] > 0
    readers = report.metrics["readable_by"]
    assert "PyIceberg 0.12" in readers["after"] and "PyIceberg 0.12" not in readers["before"]
    assert report.snapshot_before != report.snapshot_after
    table = lake.table(name)
    head = table.head()
    assert head is not None and head.summary["lakecdc.job"] == "rewrite_delete_files"
    assert head.operation == "delete"
    assert list(dict(table.java.refs())) == ["main"]
    again = run(lake, name)
    assert (again.outcome, again.snapshot_before) == ("nothing", again.snapshot_after)


@V3
def test_existing_position_deletes_are_merged_and_their_files_replaced(lake: Lake, version: int) -> None:
    name = upserted(lake, version)
    convert(lake, name)
    change(lake, name, ["id"], "SELECT id FROM range(40, 70)", "SELECT id, 'third' AS v FROM range(40, 60)")
    report = convert(lake, name)
    # 40 to 49 of the first file are already deleted
    assert report.metrics["positions"] == 20
    assert report.metrics["delete_files_superseded"] > 0
    per_file = lake.table(name).metadata("entries").where("status < 2 AND data_file.content = 1")
    referenced = [r[0] for r in per_file.select("data_file.referenced_data_file").collect()]
    assert len(referenced) == len(set(referenced)) and None not in referenced


@pytest.mark.soak
@V3
def test_positions_that_are_already_deleted_write_nothing(lake: Lake, version: int) -> None:
    name = create(lake, "id bigint, v string", version)
    insert(lake, name, "SELECT id, 'a' AS v FROM range(10)")
    change(lake, name, ["id"], "SELECT id FROM range(5)")
    convert(lake, name)
    change(lake, name, ["id"], "SELECT id FROM range(5)")
    before = count(lake, name, 1)
    report = convert(lake, name)
    assert report.metrics["positions"] == 0
    assert report.metrics["delete_files_added"] == report.metrics["deletion_vectors_added"] == 0
    assert count(lake, name, 1) == before


@V2
def test_reinsert_after_delete_and_data_of_the_same_commit_survive(lake: Lake, version: int) -> None:
    name = create(lake, "id bigint, v string", version)
    insert(lake, name, "SELECT id, 'first' AS v FROM range(10)")
    change(lake, name, ["id"], "SELECT id FROM range(10)")
    insert(lake, name, "SELECT id, 'back' AS v FROM range(3)")
    change(lake, name, ["id"], "SELECT id FROM range(2)", "SELECT id, 'same commit' AS v FROM range(2)")
    # makes the file of the previous commit a candidate, together with the deletes of its own commit
    change(lake, name, ["id"], "SELECT 1L AS id")
    report = convert(lake, name)
    assert pyiceberg_rows(lake, name) == [(0, "same commit"), (2, "back")]
    assert report.metrics["positions"] == 13


def test_duplicate_keys_in_one_file_and_across_files_are_deleted(lake: Lake) -> None:
    name = create(lake, "id bigint, v string", 2)
    insert(lake, name, "SELECT id % 5 AS id, 'a' AS v FROM range(20)")
    insert(lake, name, "SELECT id % 5 AS id, 'b' AS v FROM range(20)")
    change(lake, name, ["id"], "SELECT * FROM VALUES (0L), (3L), (3L) AS t(id)")
    change(lake, name, ["id"], "SELECT 3L AS id")
    assert convert(lake, name).metrics["positions"] == 16


def test_null_matches_null_in_a_composite_key(lake: Lake) -> None:
    name = create(lake, "a int, b string, v int", 2)
    rows = "SELECT * FROM VALUES (1, 'x', 1), (1, NULL, 2), (NULL, 'x', 3), (NULL, NULL, 4), (2, 'x', 5) AS t(a, b, v)"
    insert(lake, name, rows)
    change(lake, name, ["a", "b"], "SELECT * FROM VALUES (1, NULL), (NULL, 'x'), (2, NULL) AS t(a, b)")
    convert(lake, name)
    assert {row[2] for row in pyiceberg_rows(lake, name)} == {1, 4, 5}


@V3
def test_dangling_deletes_are_removed(lake: Lake, version: int) -> None:
    name = create(lake, "id bigint, v string", version, "bucket(4, id)")
    change(lake, name, ["id"], "SELECT id FROM range(100)", "SELECT id, 'a' AS v FROM range(10)")
    report = convert(lake, name)
    assert report.metrics["equality_delete_files_before"] == 4
    assert report.metrics["data_files_touched"] == report.metrics["positions"] == 0


def test_tables_without_rows_or_deletes_are_left_alone(lake: Lake) -> None:
    name = create(lake, "id bigint", 2)
    assert run(lake, name).outcome == "nothing"
    insert(lake, name, "SELECT id FROM range(3)")
    report = run(lake, name)
    assert (report.outcome, report.reason) == ("nothing", NOTHING)
