"""Existing tables become readable for engines in place: no deleted row returns, and impossible changes are refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from lakecdc.contract.errors import InputError, SpecError, UnsupportedError
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import stage_equality_deletes
from lakecdc.maintain.delete_files import job
from lakecdc.maintain.set_readers import set_readers
from lakecdc.metadata.names import READERS
from tests.conftest import Lake
from tests.lakecdc.maintain.support import (
    append,
    count,
    create,
    delete_by_key,
    duckdb_rows,
    head,
    listed_files,
    meanwhile,
    metadata_location,
    run,
    spark_rows,
)
from tests.on_demand import on_demand


def prepared(lake: Lake, name: str, *readers: str, **options: Any) -> TableReport:
    return run(lake, set_readers, name, readers=list(readers), **options)


def pyiceberg_rows(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    rows = lake.pyiceberg().load_table(name).scan().to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def position_delete_files(lake: Lake, name: str) -> int:
    return sum(file.file_format != "PUFFIN" for file in listed_files(lake, name, 1))


def assert_read_by_all(lake: Lake, name: str, rows: list[tuple[Any, ...]]) -> None:
    assert spark_rows(lake, name) == duckdb_rows(lake, name) == pyiceberg_rows(lake, name) == rows


def recorded(lake: Lake, name: str) -> str | None:
    return lake.table(name).properties.get(READERS)


@pytest.mark.parametrize(
    ("granularity", "partitioned_by"),
    on_demand(itertools.product(("file", "partition"), ("", "d")), in_ci=[("file", ""), ("partition", "d")]),
)
def test_no_row_returns_when_a_table_with_position_deletes_is_upgraded(
    lake: Lake, granularity: str, partitioned_by: str
) -> None:
    """A reader of a data file with a vector ignores position-delete files, so the vector must have all positions."""
    name = create(lake, 2, partitioned_by, write__delete__granularity=granularity)
    append(lake, name, 0, 40)
    append(lake, name, 40, 80)
    lake.sql(f"DELETE FROM lake.{name} WHERE id % 5 = 0")
    delete_by_key(lake, name, [1, 41], "new")
    lake.sql(f"DELETE FROM lake.{name} WHERE id % 5 = 2")
    rows = spark_rows(lake, name)
    assert position_delete_files(lake, name) and count(lake, name, 2)
    with pytest.raises(ValueError, match="equality delete"):
        pyiceberg_rows(lake, name)

    report = prepared(lake, name, "databricks", "snowflake")
    assert (report.outcome, report.reason) == ("done", None)
    assert lake.table(name).format_version == 3
    assert count(lake, name, 2) == position_delete_files(lake, name) == report.metrics["delete_files_left"] == 0
    assert_read_by_all(lake, name, rows)
    assert recorded(lake, name) == "databricks,snowflake"
    # later deletes of both kinds are added to the vectors
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 3")
    delete_by_key(lake, name, [4, 6])
    assert prepared(lake, name, "databricks", "snowflake").outcome == "done"
    assert_read_by_all(lake, name, [row for row in rows if row[0] not in (3, 4, 6)])
    again = prepared(lake, name, "databricks", "snowflake")
    assert (again.outcome, again.reason) == ("nothing", "the table fits its readers and records them")


def test_a_table_upgraded_earlier_gets_vectors(lake: Lake) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 20)
    lake.sql(f"DELETE FROM lake.{name} WHERE id < 5")
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('format-version'='3')")
    rows = spark_rows(lake, name)
    assert position_delete_files(lake, name) == 1
    report = prepared(lake, name, "databricks")
    assert report.metrics["steps"] == [
        "convert position-delete files to deletion vectors",
        "record the readers databricks",
    ]
    assert position_delete_files(lake, name) == 0
    assert_read_by_all(lake, name, rows)


def test_version_2_stays_where_its_position_deletes_are_read(lake: Lake) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 20)
    delete_by_key(lake, name, [1, 2], "new")
    lake.sql(f"ALTER TABLE lake.{name} CREATE TAG year_end")
    rows = spark_rows(lake, name)
    report = prepared(lake, name, "snowflake", "athena")
    assert report.metrics["form"] == "format version 2 with position deletes"
    assert report.metrics["refs_with_equality_deletes"] == ["year_end"]
    assert (lake.table(name).format_version, count(lake, name, 2)) == (2, 0)
    assert_read_by_all(lake, name, rows)


def test_readers_that_already_read_the_table_are_only_recorded(lake: Lake) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 20)
    delete_by_key(lake, name, [1])
    assert prepared(lake, name, "trino", "spark").metrics["steps"] == ["record the readers trino, spark"]
    assert (recorded(lake, name), count(lake, name, 2), lake.table(name).format_version) == ("trino,spark", 1, 2)
    empty = create(lake, 2)
    assert prepared(lake, empty, "databricks").outcome == "done"
    assert (lake.table(empty).format_version, recorded(lake, empty)) == (3, "databricks")


def test_a_dry_run_reports_its_plan(lake: Lake) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 20)
    delete_by_key(lake, name, [1])
    before = metadata_location(lake, name)
    report = prepared(lake, name, "databricks", dry_run=True)
    assert (report.outcome, metadata_location(lake, name)) == ("nothing", before)
    assert report.metrics["steps"] == [
        "convert 1 equality-delete files",
        "upgrade format version 2 to 3",
        "convert position-delete files to deletion vectors",
        "record the readers databricks",
    ]
    assert report.metrics["why"].startswith("Format version 3 with deletion vectors, because Databricks Runtime 18")


def test_a_table_is_never_downgraded(lake: Lake) -> None:
    name = create(lake, 3)
    append(lake, name, 0, 20)
    before = metadata_location(lake, name)
    with pytest.raises(UnsupportedError, match=r"version 3 cannot be lowered\. .*Athena reads equality.*new"):
        prepared(lake, name, "athena", "spark")
    # readers get version 3, although version 2 would suffice
    assert metadata_location(lake, name) == before
    assert prepared(lake, name, "snowflake").metrics["form"] == "format version 3 with deletion vectors"


def test_missing_or_contradictory_readers_change_nothing(lake: Lake) -> None:
    name = create(lake, 2)
    before = metadata_location(lake, name)
    with pytest.raises(InputError, match=r"No readers are given\. Set options\.readers"):
        prepared(lake, name)
    with pytest.raises(SpecError, match="read by Amazon Athena and Databricks Runtime 18"):
        prepared(lake, name, "athena", "databricks")
    assert metadata_location(lake, name) == before


def test_concurrent_equality_deletes_are_converted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 20)
    delete_by_key(lake, name, [1])
    meanwhile(monkeypatch, "set_readers.before_upgrade", lambda: delete_by_key(lake, name, [2, 3], "new"))
    assert prepared(lake, name, "databricks").outcome == "done"
    assert count(lake, name, 2) == 0
    assert {row[0]: row[1] for row in pyiceberg_rows(lake, name) if row[0] < 4} == {0: "old0", 2: "new2", 3: "new3"}


def test_a_continuous_writer_ends_the_job_before_the_upgrade(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2)
    append(lake, name, 0, 40)
    delete_by_key(lake, name, [0])
    convert, ids = job.rewrite_delete_files, iter(range(1, 40))

    def convert_beside_a_writer(*arguments: Any) -> TableReport:
        report = convert(*arguments)
        delete_by_key(lake, name, [next(ids)])
        return report

    monkeypatch.setattr(job, "rewrite_delete_files", convert_beside_a_writer)
    report = prepared(lake, name, "databricks")
    assert report.outcome == "conflict" and "Set the readers in the target first" in str(report.reason)
    assert (lake.table(name).format_version, recorded(lake, name)) == (2, None)


def test_deletes_that_cannot_be_converted_stop_the_job_before_the_upgrade(lake: Lake) -> None:
    """Engines do not agree on keys of type float."""
    name = create(lake, 2, columns="id double, v string, d int")
    lake.sql(f"INSERT INTO lake.{name} VALUES (1.5D, 'old', 0), (2.5D, 'old', 0)")
    table = lake.table(name)
    deletes = stage_equality_deletes(table, lake.sql("SELECT 1.5D AS id").coalesce(1), ["id"], 0)
    append_changes(table, RowChanges([], deletes), PositionFence(None))
    before = head(lake, name)
    report = prepared(lake, name, "databricks")
    assert (report.outcome, head(lake, name)) == ("unsupported", before)
    assert (lake.table(name).format_version, recorded(lake, name), report.metrics["delete_files_left"]) == (2, None, 1)
