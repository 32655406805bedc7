"""Deleted positions stay deleted, for every kind of delete file and every format of data file."""

from __future__ import annotations

import pytest

from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import (
    change,
    convert,
    create,
    insert,
    pyiceberg_rows,
    row_groups,
    run,
    spark_rows,
)
from tests.lakecdc.maintain.support import count, listed_files
from tests.on_demand import on_demand


def with_position_deletes(lake: Lake, version: int, granularity: str) -> str:
    """Create two data files of ten rows each, and delete 0 and 1 from both with Spark."""
    settings = {"write__delete__mode": "merge-on-read", "write__delete__granularity": granularity}
    name = create(lake, "id bigint, v string", version, **settings)
    for value in "ab":
        insert(lake, name, f"SELECT id, '{value}' AS v FROM range(10)")
    lake.sql(f"DELETE FROM lake.{name} WHERE id < 2")
    return name


@pytest.mark.parametrize("granularity", on_demand(("file", "partition"), in_ci=("partition",)))
def test_position_deletes_of_v2_stay_deleted(lake: Lake, granularity: str) -> None:
    name = with_position_deletes(lake, 2, granularity)
    change(lake, name, ["id"], "SELECT id FROM range(1, 4)")
    report = convert(lake, name)
    assert report.metrics["positions"] == 4
    assert sorted({row[0] for row in pyiceberg_rows(lake, name)}) == list(range(4, 10))
    # a delete file of several data files is split, so that a reader of one file opens no other's positions
    assert report.metrics["delete_files_superseded"] == (2 if granularity == "file" else 1)
    assert count(lake, name, 1) == 2


def test_deletion_vector_of_v3_becomes_part_of_the_new_one(lake: Lake) -> None:
    name = with_position_deletes(lake, 3, "file")
    assert count(lake, name, 1) == 2
    change(lake, name, ["id"], "SELECT id FROM range(1, 4)")
    report = convert(lake, name)
    assert (report.metrics["positions"], report.metrics["delete_files_superseded"]) == (4, 2)
    assert count(lake, name, 1) == 2
    assert [file.record_count for file in listed_files(lake, name, 1)] == [4, 4]


@pytest.mark.soak
@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_v2_position_deletes_of_an_upgraded_table_stay_deleted(lake: Lake, granularity: str) -> None:
    name = with_position_deletes(lake, 2, granularity)
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('format-version'='3')")
    change(lake, name, ["id"], "SELECT id FROM range(1, 4)")
    report = convert(lake, name)
    assert (report.metrics["positions"], report.metrics["deletion_vectors_added"]) == (4, 2)
    assert sorted({row[0] for row in spark_rows(lake, name)}) == list(range(4, 10))


@pytest.mark.parametrize(
    ("data_format", "delete_format"),
    on_demand([("avro", "orc"), ("orc", "avro"), ("parquet", "avro")], in_ci=[("orc", "avro")]),
)
def test_avro_and_orc_files_are_converted(lake: Lake, data_format: str, delete_format: str) -> None:
    settings = {"write__format__default": data_format, "write__delete__format__default": delete_format}
    name = create(lake, "id bigint, v string", 2, write__delete__mode="merge-on-read", **settings)
    insert(lake, name, "SELECT id, 'a' AS v FROM range(100)")
    lake.sql(f"DELETE FROM lake.{name} WHERE id BETWEEN 20 AND 40")
    change(lake, name, ["id"], "SELECT id FROM range(30)", "SELECT id, 'b' AS v FROM range(10)")
    before = spark_rows(lake, name)
    report = convert_for_spark(lake, name)
    assert report == 20
    assert spark_rows(lake, name) == before


def convert_for_spark(lake: Lake, name: str) -> int:
    """Convert without the other readers, which do not support these formats; return the positions."""
    report = run(lake, name)
    assert (report.outcome, report.metrics["equality_delete_files_after"]) == ("done", 0)
    return int(report.metrics["positions"])


def test_a_large_file_with_several_row_groups_is_converted(lake: Lake) -> None:
    name = create(lake, "id bigint, v string", 3, **{"write__parquet__row-group-size-bytes": "16384"})
    insert(lake, name, "SELECT id, concat('value ', hash(id)) AS v FROM range(10000)")
    assert min(row_groups(lake, name)) > 1
    change(lake, name, ["id"], "SELECT id FROM range(0, 10000, 7)")
    assert convert(lake, name).metrics["positions"] == 1429
