"""An equality delete removed before all files of its scope are processed restores rows of the others."""

from __future__ import annotations

import pytest

from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, convert, create, insert, spark_rows
from tests.lakecdc.maintain.traps.naive import data_files, equality_deletes, physical_rows, position_deletes
from tests.versions import V2, V3


def two_files_one_delete(lake: Lake, version: int) -> str:
    """Create one delete that applies to two data files."""
    name = create(lake, "id bigint, v string", version)
    for value in "ab":
        insert(lake, name, f"SELECT id, '{value}' AS v FROM range(10)")
    change(lake, name, ["id"], "SELECT id FROM range(3)")
    return name


@pytest.mark.soak
@V3
def test_a_delete_dropped_after_one_of_its_files_restores_rows(lake: Lake, version: int) -> None:
    name = two_files_one_delete(lake, version)
    table, first = lake.table(name), data_files(lake, name)[0]
    deleted = [r["_pos"] for r in physical_rows(lake, name) if r["_deleted"] and r["_file"] == str(first.location())]
    delta = table.java.newRowDelta().addDeletes(position_deletes(table, first, sorted(deleted)))
    delta.removeDeletes(equality_deletes(table)[0]).commit()
    assert len(spark_rows(lake, name)) == 14 + 3


@V2
def test_our_conversion_processes_the_whole_scope(lake: Lake, version: int) -> None:
    name = two_files_one_delete(lake, version)
    report = convert(lake, name)
    assert (report.metrics["data_files_touched"], report.metrics["positions"]) == (2, 6)
    assert len(spark_rows(lake, name)) == 14
