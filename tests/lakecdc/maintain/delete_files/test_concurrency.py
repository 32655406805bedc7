"""Other writers between the plan and the commit of a conversion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakecdc.iceberg.jvm import iterate
from lakecdc.iceberg.staging import stage_rows
from lakecdc.maintain.delete_files import job, verify
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.conftest import Meanwhile, once
from tests.lakecdc.maintain.delete_files.support import (
    Rows,
    change,
    convert,
    create,
    insert,
    pyiceberg_rows,
    run,
    spark_rows,
)
from tests.lakecdc.maintain.support import count
from tests.on_demand import on_demand
from tests.versions import V3

#: test_writers_meanwhile covers version 3; both run on demand
BOTH = pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.soak)])


def table_with_deletes(lake: Lake, version: int, layout: str = "") -> str:
    name = create(lake, "id bigint NOT NULL, v string", version, layout)
    insert(lake, name, "SELECT id, 'a' AS v FROM range(20)")
    change(lake, name, ["id"], "SELECT id FROM range(5)")
    return name


def compact(lake: Lake, name: str) -> None:
    """Rewrite every data file as Iceberg's procedure does by default."""
    lake.sql(
        f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true', "
        "'delete-file-threshold', '1'))"
    ).collect()


def written_files(lake: Lake, name: str) -> set[str]:
    """Return the delete files on disk that the job has written."""
    root = Path(lake.table(name).location.removeprefix("file:"))
    return {str(p) for p in root.rglob("deletes-*/*") if not p.name.startswith(".")}


def ids_of(rows: Rows) -> list[int]:
    return [row[0] for row in rows]


@BOTH
def test_concurrent_commits_of_writers_do_not_stop_the_conversion(
    lake: Lake, version: int, meanwhile: Meanwhile
) -> None:
    name = table_with_deletes(lake, version)

    def write() -> None:
        insert(lake, name, "SELECT 100L AS id, 'append' AS v")
        change(lake, name, ["id"], "SELECT id FROM range(4, 7)", "SELECT 6L AS id, 'upsert' AS v")

    meanwhile(write)
    report = run(lake, name)
    assert (report.outcome, report.metrics["conflicts"], report.metrics["commits"]) == ("done", 0, 1)
    assert ids_of(spark_rows(lake, name)) == [10, 100, 11, 12, 13, 14, 15, 16, 17, 18, 19, 6, 7, 8, 9]
    # a concurrent delete is left for the next run
    assert report.metrics["equality_delete_files_after"] == count(lake, name, 2) == 1
    meanwhile(lambda: None)
    convert(lake, name)


@BOTH
def test_a_concurrent_compaction_causes_a_new_plan(lake: Lake, version: int, meanwhile: Meanwhile) -> None:
    name = table_with_deletes(lake, version)
    change(lake, name, ["id"], "SELECT id FROM range(10, 12)", "SELECT id, 'b' AS v FROM range(10, 12)")
    before = spark_rows(lake, name)
    meanwhile(once(lambda: compact(lake, name)))
    report = run(lake, name)
    assert (report.outcome, report.metrics["conflicts"]) in [("done", 1), ("nothing", 1)]
    assert count(lake, name, 2) == 0
    assert spark_rows(lake, name) == before


def test_repeated_conflicts_end_as_a_conflict(lake: Lake, meanwhile: Meanwhile) -> None:
    name = create(lake, "id bigint NOT NULL, v string", 2)
    # an older file that stays: without it Iceberg drops the equality deletes once all others are rewritten (#10312)
    insert(lake, name, "SELECT 500L AS id, 'stays' AS v")
    insert(lake, name, "SELECT id, 'a' AS v FROM range(20)")
    change(lake, name, ["id"], "SELECT id FROM range(5)")

    def rewrite_at_the_old_sequence_number() -> None:
        # all physical rows, so that the deletes still apply to the new file
        table = lake.table(name)
        (old,) = (task.file() for task in iterate(table.java.newScan().planFiles()) if task.file().recordCount() == 20)
        (new,) = stage_rows(table, lake.sql("SELECT id, 'a' AS v FROM range(20)").coalesce(1))
        rewrite = table.java.newRewrite().dataSequenceNumber(old.dataSequenceNumber())
        rewrite.deleteFile(old).addFile(new).commit()

    before = spark_rows(lake, name)
    meanwhile(rewrite_at_the_old_sequence_number)
    report = run(lake, name)
    assert (report.outcome, report.failure_class) == ("conflict", "conflict")
    assert report.metrics["conflicts"] == job.ATTEMPTS
    assert written_files(lake, name) == set()
    assert spark_rows(lake, name) == before
    assert list(dict(lake.table(name).java.refs())) == ["main"]


@pytest.mark.soak
@pytest.mark.usefixtures("unleased")
@pytest.mark.parametrize("version", [2, 3])
def test_two_concurrent_conversions_lose_no_delete(lake: Lake, version: int, meanwhile: Meanwhile) -> None:
    name = table_with_deletes(lake, version)
    before = spark_rows(lake, name)
    other: list[Any] = []
    meanwhile(once(lambda: other.append(run(lake, name))))
    report = run(lake, name)
    assert (other[0].outcome, other[0].metrics["commits"]) == ("done", 1)
    assert (report.metrics["conflicts"], report.metrics["commits"]) == (1, 0)
    assert spark_rows(lake, name) == before
    assert count(lake, name, 1) == 1


@pytest.mark.parametrize(("commits", "conflicts"), on_demand([(1, 0), (2, 1)], in_ci=[(2, 1)]))
def test_a_concurrent_foreign_expiry_causes_a_new_plan(
    lake: Lake, commits: int, conflicts: int, meanwhile: Meanwhile
) -> None:
    """The tag keeps the start snapshot, but not those between it and the head."""
    name = table_with_deletes(lake, 2)

    def commit_and_expire() -> None:
        for value in range(commits):
            insert(lake, name, f"SELECT {100 + value}L AS id, 'c' AS v")
        lake.sql(
            f"CALL lake.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2099-01-01 00:00:00', "
            "retain_last => 1)"
        )

    meanwhile(once(commit_and_expire))
    report = run(lake, name)
    assert (report.outcome, report.metrics["conflicts"]) == ("done", conflicts)
    assert len(spark_rows(lake, name)) == 15 + commits


@pytest.mark.soak
def test_a_concurrent_format_upgrade_discards_position_deletes(lake: Lake, meanwhile: Meanwhile) -> None:
    """Format v3 accepts only vectors, so that the written position deletes cannot be committed."""
    name = table_with_deletes(lake, 2)
    before = spark_rows(lake, name)
    meanwhile(once(lambda: lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('format-version'='3')")))
    report = run(lake, name)
    assert (report.outcome, report.metrics["conflicts"], report.metrics["deletion_vectors_added"]) == ("done", 1, 1)
    assert (count(lake, name, 2), spark_rows(lake, name)) == (0, before)


@pytest.mark.soak
def test_no_groups_are_left_if_all_rows_are_deleted_meanwhile(lake: Lake, meanwhile: Meanwhile) -> None:
    name = table_with_deletes(lake, 3)
    meanwhile(once(lambda: lake.sql(f"DELETE FROM lake.{name}")))
    report = run(lake, name)
    assert (report.outcome, report.reason, report.metrics["groups_left"]) == ("done", None, 0)
    assert spark_rows(lake, name) == []


def test_files_that_can_no_longer_be_committed_are_not_proven(
    lake: Lake, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, proofs, real = table_with_deletes(lake, 3), [], verify.Proving.finish

    def finish(*arguments: Any) -> verify.Proof:
        proofs.append(real(*arguments))
        return proofs[-1]

    monkeypatch.setattr(verify.Proving, "finish", finish)
    before = spark_rows(lake, name)
    meanwhile(once(lambda: compact(lake, name)), "planned")
    report = run(lake, name)
    assert (report.metrics["conflicts"], len(proofs)) == (1, report.metrics["commits"])
    assert (count(lake, name, 2), spark_rows(lake, name), written_files(lake, name)) == (0, before, set())


WRITES = {
    "merge": "MERGE INTO {table} t USING (SELECT explode(array(3L, 10L)) AS id) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = 'm' WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 'n')",
    "delete": "DELETE FROM {table} WHERE id = 11",
    "update": "UPDATE {table} SET v = 'u' WHERE id = 12",
    "delete whole files": "DELETE FROM {table} WHERE id < 50",
    "rewrite position deletes": "CALL lake.system.rewrite_position_delete_files(table => '{table}', "
    "options => map('rewrite-all', 'true'))",
    "rewrite manifests": "CALL lake.system.rewrite_manifests(table => '{table}')",
}


@V3
@pytest.mark.parametrize("kind", on_demand(WRITES, in_ci=("merge",)))
def test_concurrent_spark_statements_keep_their_changes(
    lake: Lake, version: int, kind: str, meanwhile: Meanwhile
) -> None:
    """Spark reads the rows after equality deletes, and writes position deletes, vectors or other data files."""
    # UPDATE is copy-on-write, the others are merge-on-read
    settings = {"write__delete__mode": "merge-on-read", "write__merge__mode": "merge-on-read"}
    name = create(lake, "id bigint, v string", version, **settings)
    insert(lake, name, "SELECT id, 'a' AS v FROM range(20)")
    insert(lake, name, "SELECT id, 'z' AS v FROM range(100, 120)")
    lake.sql(f"DELETE FROM lake.{name} WHERE id IN (19, 101)")
    change(lake, name, ["id"], "SELECT id FROM range(5)")
    expected: list[Rows] = []

    def write() -> None:
        lake.sql(WRITES[kind].format(table=f"lake.{name}")).collect()
        expected.append(spark_rows(lake, name))

    meanwhile(once(write))
    assert run(lake, name).outcome == "done"
    assert run(lake, name).outcome in ("done", "nothing")
    assert count(lake, name, 2) == 0
    assert spark_rows(lake, name) == pyiceberg_rows(lake, name) == expected[0]
    assert sorted(lake.duckdb_rows(name), key=repr) == expected[0]
