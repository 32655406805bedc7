"""Position deletes are merged, split by data file, turned into vectors, and dropped if they apply to nothing."""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.iceberg.commit import RowChanges, append_changes, replace_data_files
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.live_deletes import DeleteKey
from lakecdc.iceberg.staging import stage_rows
from lakecdc.maintain.delete_files.plan import Why, survey
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, convert, create, insert, run, spark_rows
from tests.lakecdc.maintain.delete_files.support import pyiceberg_rows as pyiceberg
from tests.lakecdc.maintain.support import count, listed_files
from tests.on_demand import on_demand
from tests.versions import V2


def merge_on_read(lake: Lake, version: int, granularity: str, partitioned_by: str = "") -> str:
    settings = {"write__delete__mode": "merge-on-read", "write__delete__granularity": granularity}
    return create(lake, "id bigint, v string", version, partitioned_by, **settings)


def merged(lake: Lake, name: str, **options: object) -> dict[str, object]:
    """Run on a table without equality deletes and check that three readers see the same rows before and after."""
    before = spark_rows(lake, name)
    report = run(lake, name, **options)
    assert report.outcome == "done", report.reason
    assert spark_rows(lake, name) == before == pyiceberg(lake, name)
    assert sorted(lake.duckdb_rows(name), key=repr) == before
    return report.metrics


def test_delete_files_of_one_data_file_are_merged(lake: Lake) -> None:
    name = merge_on_read(lake, 2, "file")
    for value in "ab":
        insert(lake, name, f"SELECT id, '{value}' AS v FROM range(20)")
    for low in (0, 5):
        lake.sql(f"DELETE FROM lake.{name} WHERE id BETWEEN {low} AND {low + 2}")
    insert(lake, name, "SELECT id, 'c' AS v FROM range(20)")
    lake.sql(f"DELETE FROM lake.{name} WHERE v = 'c' AND id = 1")
    # Spark itself replaces a data file's delete file, so that only another writer leaves two
    second_delete_file(lake, name)
    before = count(lake, name, 1)
    metrics = merged(lake, name)
    assert metrics["position_delete_files_to_merge"] == 2
    assert (metrics["delete_files_added"], metrics["delete_files_superseded"]) == (1, 2)
    assert count(lake, name, 1) == before - 1
    assert metrics["verified"] == {"mode": "full", "files": 1, "of": 1}
    assert run(lake, name).outcome == "nothing"


def second_delete_file(lake: Lake, name: str) -> None:
    """Delete position 0 of the first data file again, in a second delete file."""
    from pyroaring import BitMap64

    from lakecdc.iceberg.file_io import new_folder, storage_properties
    from lakecdc.iceberg.jvm import iterate
    from lakecdc.iceberg.staging import delete_file
    from lakecdc.writer.deletes import FilePositions, Target, write_position_deletes

    table = lake.table(name)
    tasks = sorted(iterate(table.java.newScan().planFiles()), key=lambda task: int(task.file().dataSequenceNumber()))
    file = tasks[0].file()
    target = Target(new_folder(table, "deletes"), storage_properties(table), {0: str(file.location())})
    (written,) = write_position_deletes([FilePositions(0, BitMap64(), BitMap64([0]))], target)
    deletes = [delete_file(table, file, written)]
    append_changes(table, RowChanges(deletes=deletes), PositionFence(None))


@pytest.mark.parametrize("layout", on_demand(("", "bucket(2, id)"), in_ci=("bucket(2, id)",)))
def test_delete_files_of_a_partition_are_split_by_data_file(lake: Lake, layout: str) -> None:
    name = merge_on_read(lake, 2, "partition", layout)
    for value in "abc":
        insert(lake, name, f"SELECT id, '{value}' AS v FROM range(20)")
    lake.sql(f"DELETE FROM lake.{name} WHERE id < 6 AND v <> 'c'")
    metrics = merged(lake, name)
    shared = 2 if layout else 1
    assert (metrics["delete_files_superseded"], metrics["delete_files_added"]) == (shared, 2 * shared)
    entries = lake.table(name).metadata("entries").where("status < 2 AND data_file.content = 1")
    assert entries.where("data_file.referenced_data_file IS NULL").count() == 0


@pytest.mark.parametrize("granularity", ["partition", pytest.param("file", marks=pytest.mark.soak)])
def test_v2_leftovers_of_an_upgraded_table_become_vectors(lake: Lake, granularity: str) -> None:
    name = merge_on_read(lake, 2, granularity)
    for value in "abc":
        insert(lake, name, f"SELECT id, '{value}' AS v FROM range(20)")
    lake.sql(f"DELETE FROM lake.{name} WHERE id < 6 AND v <> 'c'")
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('format-version'='3')")
    # Spark writes a vector for one file, which then includes the v2 positions
    lake.sql(f"DELETE FROM lake.{name} WHERE id = 10 AND v = 'a'")
    metrics = merged(lake, name)
    assert {file.file_format.value for file in listed_files(lake, name, 1)} == {"PUFFIN"}
    assert metrics["deletion_vectors_added"] in (1, 2)


@V2
def test_deletes_that_apply_to_nothing_are_dropped(lake: Lake, version: int) -> None:
    name = merge_on_read(lake, version, "file")
    for value in "ab":
        insert(lake, name, f"SELECT id, '{value}' AS v FROM range(20)")
    lake.sql(f"DELETE FROM lake.{name} WHERE id < 6")
    replace_first_file(lake, name)
    dangling = 0 if version == 3 else 1  # Iceberg's commit removes a vector together with its data file
    assert list(survey_of(lake, name).values()).count("dangling") == dangling
    if dangling:
        metrics = merged(lake, name)
        assert (metrics["dangling_position_deletes"], metrics["delete_files_superseded"]) == (1, 1)
    assert count(lake, name, 1) == 1


def replace_first_file(lake: Lake, name: str) -> None:
    from lakecdc.iceberg.jvm import iterate

    table = lake.table(name)
    start = table.head()
    assert start is not None
    tasks = sorted(iterate(table.java.newScan().planFiles()), key=lambda task: int(task.file().dataSequenceNumber()))
    rows = lake.sql(f"SELECT * FROM lake.{name} WHERE v = 'a'").coalesce(1)
    replace_data_files(table, RowChanges(stage_rows(table, rows), removed_rows=[tasks[0].file()]), start)


def survey_of(lake: Lake, name: str) -> dict[DeleteKey, Why]:
    table = lake.table(name)
    head = table.head()
    assert head is not None
    return survey(table, head, 2)


def test_position_deletes_are_kept_on_request(lake: Lake) -> None:
    name = merge_on_read(lake, 2, "partition")
    for value in "ab":
        insert(lake, name, f"SELECT id, '{value}' AS v FROM range(20)")
    lake.sql(f"DELETE FROM lake.{name} WHERE id < 6")
    assert run(lake, name, position_deletes="keep").outcome == "nothing"
    with pytest.raises(SpecError, match="min_input_files is 1"):
        run(lake, name, min_input_files=1)
    change(lake, name, ["id"], "SELECT 19L AS id")
    assert convert(lake, name).metrics["delete_files_superseded"] == 1


def test_conversion_and_merge_are_one_pass(lake: Lake) -> None:
    name = merge_on_read(lake, 2, "partition")
    for value in "abc":
        insert(lake, name, f"SELECT id, '{value}' AS v FROM range(20)")
    lake.sql(f"DELETE FROM lake.{name} WHERE id < 6 AND v <> 'c'")
    change(lake, name, ["id"], "SELECT id FROM range(5, 8)", "SELECT id, 'd' AS v FROM range(5, 8)")
    metrics = convert(lake, name).metrics
    assert (metrics["commits"], metrics["delete_files_added"], metrics["delete_files_superseded"]) == (1, 3, 1)
    # three files lose 5, 6 and 7; in two of them 5 was already deleted
    assert metrics["positions"] == 7
