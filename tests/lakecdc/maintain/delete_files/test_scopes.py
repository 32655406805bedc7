"""An equality delete applies to its spec and partition, or to the whole table if its spec is unpartitioned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lakecdc.contract.errors import VerificationError
from lakecdc.iceberg import file_tasks
from lakecdc.iceberg.bulk import JavaFunction, java_calls
from lakecdc.iceberg.forwarding import OBJECT
from lakecdc.iceberg.live_deletes import Scopes
from lakecdc.maintain.delete_files import job, plan
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import (
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
from tests.versions import V2, V3


@V3
def test_deletes_apply_to_the_buckets_of_their_spec(lake: Lake, version: int) -> None:
    name = create(lake, "id bigint NOT NULL, v string", version, "bucket(4, id)")
    insert(lake, name, "SELECT id, 'a' AS v FROM range(40)")
    lake.sql(f"ALTER TABLE lake.{name} REPLACE PARTITION FIELD bucket(4, id) WITH bucket(3, id)")
    old, new = 0, int(lake.table(name).java.spec().specId())
    change(lake, name, ["id"], "SELECT id FROM range(10)", "SELECT id, 'b' AS v FROM range(10)", specs=[old, new])
    change(lake, name, ["id"], "SELECT id FROM range(5, 15)", specs=[old, new])
    # applies to nothing: these keys are in files of the old spec
    change(lake, name, ["id"], "SELECT id FROM range(30, 40)", specs=[new])
    report = convert(lake, name)
    assert report.metrics["scopes"] == 7
    assert len(pyiceberg_rows(lake, name)) == 30 - 5 + 5


@pytest.mark.soak
def test_deletes_apply_across_changed_transforms(lake: Lake) -> None:
    name = create(lake, "id bigint NOT NULL, region string", 3, "bucket(4, id)")
    rows, key = "SELECT id, IF(id % 2 = 0, 'north', 'south') AS region FROM", ["id", "region"]
    insert(lake, name, f"{rows} range(20)")
    lake.sql(f"ALTER TABLE lake.{name} REPLACE PARTITION FIELD bucket(4, id) WITH region")
    second = int(lake.table(name).java.spec().specId())
    insert(lake, name, f"{rows} range(20, 40)")
    change(lake, name, key, f"{rows} range(18, 24)", specs=[0, second])
    lake.sql(f"ALTER TABLE lake.{name} REPLACE PARTITION FIELD region WITH truncate(1, region)")
    third = int(lake.table(name).java.spec().specId())
    added = "SELECT id, CAST(NULL AS string) AS region FROM range(3)"
    change(lake, name, key, f"{rows} range(16, 26)", added, specs=[0, second, third])
    assert convert(lake, name).metrics["positions"] == 10
    assert sorted(row[0] for row in spark_rows(lake, name)) == sorted([*range(16), *range(26, 40), 0, 1, 2])


@V2
def test_global_deletes_apply_to_a_table_partitioned_later(lake: Lake, version: int) -> None:
    name = create(lake, "id bigint, region string", version)
    insert(lake, name, "SELECT id, 'north' AS region FROM range(10)")
    lake.sql(f"ALTER TABLE lake.{name} ADD PARTITION FIELD region")
    insert(lake, name, "SELECT id, IF(id % 2 = 0, 'north', 'south') AS region FROM range(10)")
    new = int(lake.table(name).java.spec().specId())
    # global, and so for both specs: written while the table is briefly unpartitioned
    lake.sql(f"ALTER TABLE lake.{name} DROP PARTITION FIELD region")
    change(lake, name, ["id"], "SELECT id FROM range(2)", specs=[0])
    lake.sql(f"ALTER TABLE lake.{name} ADD PARTITION FIELD region")
    change(lake, name, ["id", "region"], "SELECT 4L AS id, 'north' AS region", specs=[new])
    insert(lake, name, "SELECT 0L AS id, 'south' AS region")
    report = convert(lake, name)
    assert report.metrics["scopes"] == 1
    ids = sorted(row[0] for row in pyiceberg_rows(lake, name))
    assert ids == [0, 2, 2, 3, 3, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9]


def test_similar_partition_values_are_distinguished(lake: Lake) -> None:
    name = create(lake, "id bigint, p string", 2, "p")
    values = "SELECT * FROM VALUES ('null'), (NULL), ('a/b=c %'), (''), ('Zürich') AS t(p)"
    insert(lake, name, f"SELECT id, p FROM range(3) CROSS JOIN ({values})")
    change(lake, name, ["id", "p"], "SELECT 1L AS id, 'null' AS p UNION ALL SELECT 2L, CAST(NULL AS string)")
    change(
        lake, name, ["id", "p"], "SELECT 0L AS id, 'a/b=c %' AS p UNION ALL SELECT 0L, 'Zürich' UNION ALL SELECT 0L, ''"
    )
    report = convert(lake, name)
    assert report.metrics["scopes"] == 5
    deleted = {(1, "null"), (2, None), (0, "a/b=c %"), (0, "Zürich"), (0, "")}
    rows = pyiceberg_rows(lake, name)
    assert len(rows) == 10
    assert not deleted & set(rows)


@V3
def test_groups_are_committed_one_by_one(
    lake: Lake, version: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lakecdc.runtime.progress")
    name = create(lake, "id bigint NOT NULL", version, "bucket(4, id)")
    insert(lake, name, "SELECT id FROM range(40)")
    change(lake, name, ["id"], "SELECT id FROM range(20)")
    monkeypatch.setattr(plan, "GROUP_DATA_FILES", 1)
    report = convert(lake, name)
    assert report.metrics["commits"] == 4
    assert (report.metrics["positions"], report.metrics["groups_left"]) == (20, 0)
    assert f"progress of {name}: 4 of 4 groups of scopes, in " in caplog.text


def test_max_runtime_ends_the_job_between_groups(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, "id bigint NOT NULL", 2, "bucket(4, id)")
    insert(lake, name, "SELECT id FROM range(40)")
    change(lake, name, ["id"], "SELECT id FROM range(20)")
    monkeypatch.setattr(plan, "GROUP_DATA_FILES", 1)
    rows = spark_rows(lake, name)
    over = iter([False, True])
    monkeypatch.setattr(job.Rewrite, "_out_of_time", lambda self: next(over))
    report = run(lake, name, max_runtime=60.0)
    assert report.outcome == "done" and "3 groups of scopes are left" in str(report.reason)
    assert report.metrics["commits"] == 1
    assert count(lake, name, 2) == 3
    assert spark_rows(lake, name) == rows
    monkeypatch.undo()
    convert(lake, name)


@pytest.mark.soak
def test_a_max_runtime_of_zero_changes_nothing(lake: Lake) -> None:
    name = create(lake, "id bigint", 2)
    insert(lake, name, "SELECT id FROM range(4)")
    change(lake, name, ["id"], "SELECT id FROM range(2)")
    report = run(lake, name, max_runtime=1e-9)
    assert (report.metrics["commits"], report.metrics["groups_left"]) == (0, 1)


@pytest.mark.parametrize("limit", on_demand((file_tasks.MAX_PAIRS, 0), in_ci=(file_tasks.MAX_PAIRS,)))
def test_scopes_that_do_not_match_stop_the_job(lake: Lake, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If scopes were separated wrongly, deletes would be removed without the files they apply to."""
    name = create(lake, "id bigint NOT NULL", 2, "bucket(4, id)")
    insert(lake, name, "SELECT id FROM range(40)")
    change(lake, name, ["id"], "SELECT id FROM range(20)")
    rows, calls = spark_rows(lake, name), java_calls(lake.spark)

    def always_another(scopes: Scopes, file: JavaFunction) -> JavaFunction:
        return calls.method("java.lang.System", "identityHashCode", OBJECT)(file)

    monkeypatch.setattr(Scopes, "number", always_another)
    monkeypatch.setattr(file_tasks, "MAX_PAIRS", limit)
    with pytest.raises(VerificationError, match="separates equality deletes from data files"):
        run(lake, name)
    assert spark_rows(lake, name) == rows
    assert count(lake, name, 2) == 4


def test_units_that_split_scopes_stop_the_job(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, "id bigint NOT NULL", 2, "bucket(4, id)")
    insert(lake, name, "SELECT id FROM range(40)")
    change(lake, name, ["id"], "SELECT id FROM range(20)")

    def torn(deletes: Any, positions: Any, tasks: Any) -> Iterator[plan.Group]:
        yield plan.Group(tuple(deletes), tuple(tasks[1:]))
        yield plan.Group((), tuple(tasks[:1]), tuple(positions))

    monkeypatch.setattr(plan, "_units", torn)
    with pytest.raises(VerificationError, match="separates equality deletes from data files"):
        run(lake, name)
    assert count(lake, name, 2) == 4
