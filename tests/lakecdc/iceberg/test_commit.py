"""Staged files are committed behind a fence, and other readers see what Spark sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakecdc.contract.errors import ConflictError, InputError
from lakecdc.iceberg import scratch
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.expressions import row_filter
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.jvm import java_class_name
from lakecdc.iceberg.staging import stage_equality_deletes, stage_rows
from lakecdc.metadata import names
from tests.conftest import Lake
from tests.versions import V3


def make(lake: Lake, version: int) -> str:
    name = lake.new_name("commit")
    lake.sql(
        f"CREATE TABLE lake.{name} (id bigint NOT NULL, v string) USING iceberg PARTITIONED BY (bucket(4, id)) "
        f"TBLPROPERTIES ('format-version'='{version}')"
    )
    lake.sql(f"INSERT INTO lake.{name} SELECT id, concat('old', id) FROM range(100)")
    return name


class OvertakenFence(PositionFence):
    """A fence whose validation, which Iceberg calls within the commit, lets other writers commit first."""

    def __init__(self, others: list[Callable[[], object]]) -> None:
        super().__init__(None)
        self.others = others

    def validate(self, ancestors: Any) -> bool:
        if self.others:
            self.others.pop()()
        return super().validate(ancestors)


def upsert(lake: Lake, name: str, ids: range, value: str, start: str | None, end: str, **kwargs: object) -> None:
    table = lake.table(name)
    batch = lake.spark.range(ids.start, ids.stop).selectExpr("id", f"'{value}' AS v")
    deletes = stage_equality_deletes(table, batch.select("id"), ["id"], table.java.spec().specId())
    changes = RowChanges(stage_rows(table, batch), deletes, summary={names.POSITIONS: end})
    append_changes(table, changes, PositionFence(start), **kwargs)  # type: ignore[arg-type]


@V3
def test_upsert_is_seen_by_duckdb(lake: Lake, version: int) -> None:
    name = make(lake, version)
    upsert(lake, name, range(90, 110), "new", None, "p1")
    rows = dict(lake.duckdb_rows(name, "id, v"))
    assert len(rows) == 110
    assert rows[89] == "old89" and rows[90] == "new" and rows[109] == "new"


def test_fence_refuses_a_lagging_run_and_the_tag_moves_with_the_commit(lake: Lake) -> None:
    name = make(lake, 2)
    upsert(lake, name, range(5), "first", None, "p1", tag="lakecdc-positions")
    with pytest.raises(ConflictError, match="another run has moved"):
        upsert(lake, name, range(5), "lagging", None, "p1b")
    upsert(lake, name, range(5), "second", "p1", "p2", tag="lakecdc-positions")
    assert dict(lake.duckdb_rows(name, "id, v"))[0] == "second"
    table = lake.table(name)
    assert table.java.refs().get("lakecdc-positions").snapshotId() == table.head().id  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", ["append", "branch"])
def test_other_commits_do_not_fail_ours(lake: Lake, mode: str) -> None:
    """Iceberg gives up a transaction that moves a tag or a branch as soon as anything else was committed."""
    name = make(lake, 2)
    table, other = lake.table(name), lake.table(name)
    fence = OvertakenFence([lambda: other.update_properties({"a": "1"}), lambda: other.update_properties({"b": "2"})])
    changes = RowChanges(summary={names.POSITIONS: "p1"})
    if mode == "append":
        changes.rows = stage_rows(table, lake.spark.range(200, 203).selectExpr("id", "'new' AS v"))
        append_changes(table, changes, fence, tag="lakecdc-positions")
    else:
        base = table.head()
        assert base is not None
        with scratch.branch(table, base) as branch:
            lake.sql(f"INSERT INTO lake.{name}.branch_{branch} SELECT id, 'new' FROM range(200, 203)")
            scratch.publish(table, branch, base, fence, changes.summary)
    table.refresh()
    assert fence.others == [] and table.properties["a"] == "1" and table.properties["b"] == "2"
    assert len(lake.duckdb_rows(name)) == 103
    head = table.head()
    assert head is not None and table.java.refs().get("lakecdc-positions").snapshotId() == head.id


def test_truncate_and_new_rows_are_one_metadata_commit(lake: Lake) -> None:
    name = make(lake, 3)
    table = lake.table(name)
    batch = lake.spark.range(3).selectExpr("id", "'after' AS v")
    everything = row_filter(table, "id", "greaterThanOrEqual", 0)  # type: ignore[arg-type]
    append_changes(table, RowChanges(stage_rows(table, batch)), PositionFence(None), truncate=everything)
    assert sorted(lake.duckdb_rows(name, "id, v")) == [(0, "after"), (1, "after"), (2, "after")]


def test_a_statement_on_a_branch_dropped_by_others_is_a_conflict(lake: Lake) -> None:
    table = lake.table(make(lake, 2))
    base = table.head()
    assert base is not None
    with pytest.raises(scratch.HeadMovedError), scratch.branch(table, base) as branch:
        # as a run does when it publishes its branch
        scratch.remove(table, [branch])
        raise RuntimeError("Missing required files to delete")
    with pytest.raises(RuntimeError), scratch.branch(table, base):
        raise RuntimeError("of something else")


def test_a_retried_commit_that_had_arrived_deletes_nothing(lake: Lake) -> None:
    """Iceberg deletes the manifests of a commit that a validator refuses, and this commit is the table's head."""
    name = make(lake, 2)
    upsert(lake, name, range(5), "new", None, "p1")
    table = lake.table(name)
    head = table.head()
    assert head is not None
    fence = PositionFence(None)
    fence.mark = head.summary[names.COMMIT_ID]
    with pytest.raises(Exception, match="arrived as snapshot") as caught:
        table.java.newRowDelta().validateWith(fence).commit()
    assert java_class_name(caught.value) == "Py4JException"
    assert dict(lake.duckdb_rows(name, "id, v"))[0] == "new"


def test_missing_table_is_bad_input(lake: Lake) -> None:
    with pytest.raises(InputError, match="table does not exist"):
        lake.table("test.nowhere")
