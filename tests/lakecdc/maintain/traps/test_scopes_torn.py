"""An equality delete that goes before every file of its scope has been processed gives the others' rows back.

So does one that is taken for a delete of one partition although it reaches the whole table, or of all specs although
it reaches one.
"""

from __future__ import annotations

import pytest

from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, convert, create, insert, spark_rows
from tests.lakecdc.maintain.traps.naive import data_files, equality_deletes, position_deletes, rows_as_they_lie

VERSIONS = pytest.mark.parametrize("version", [2, 3])


def two_files_one_delete(lake: Lake, version: int) -> str:
    """One delete that reaches both data files."""
    name = create(lake, "id bigint, v string", version)
    for value in "ab":
        insert(lake, name, f"SELECT id, '{value}' AS v FROM range(10)")
    change(lake, name, ["id"], "SELECT id FROM range(3)")
    return name


@VERSIONS
def test_a_delete_dropped_after_one_of_its_files(lake: Lake, version: int) -> None:
    name = two_files_one_delete(lake, version)
    table, first = lake.table(name), data_files(lake, name)[0]
    found = [r["_pos"] for r in rows_as_they_lie(lake, name) if r["_deleted"] and r["_file"] == str(first.location())]
    delta = table.java.newRowDelta().addDeletes(position_deletes(table, first, sorted(found)))
    delta.removeDeletes(equality_deletes(table)[0]).commit()
    assert len(spark_rows(lake, name)) == 14 + 3


@VERSIONS
def test_ours_processes_the_whole_scope(lake: Lake, version: int) -> None:
    name = two_files_one_delete(lake, version)
    report = convert(lake, name)
    assert (report.metrics["data_files_touched"], report.metrics["positions"]) == (2, 6)
    assert len(spark_rows(lake, name)) == 14


@pytest.mark.parametrize("engine", ["exact", "join"])
def test_ours_does_not_reach_into_other_specs(lake: Lake, engine: str) -> None:
    """Rows with a deleted key in files of another spec are alive, and stay so."""
    name = create(lake, "id bigint, v string", 2, "bucket(2, id)")
    insert(lake, name, "SELECT id, 'old' AS v FROM range(10)")
    lake.sql(f"ALTER TABLE lake.{name} REPLACE PARTITION FIELD bucket(2, id) WITH bucket(5, id)")
    insert(lake, name, "SELECT id, 'new' AS v FROM range(10)")
    new = int(lake.table(name).java.spec().specId())
    change(lake, name, ["id"], "SELECT id FROM range(10)", specs=[new])
    assert {row[1] for row in spark_rows(lake, name)} == {"old"}
    assert convert(lake, name, engine=engine).metrics["positions"] == 10
    assert len(spark_rows(lake, name)) == 10
