"""An equality delete of an old, unpartitioned spec seems to apply to nothing: no data file has its spec.

It applies to the whole table. A search for deletes without data by spec and partition removes it too early.
"""

from __future__ import annotations

import pytest

from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, convert, create, insert, spark_rows
from tests.lakecdc.maintain.support import count
from tests.lakecdc.maintain.traps.naive import dangling_by_partition, equality_deletes
from tests.versions import V2, V3


def global_delete_under_an_old_spec(lake: Lake, version: int) -> str:
    """Create data files in the partitioned spec 1, and a delete of ids 0 and 1 in the unpartitioned spec 0."""
    name = create(lake, "id bigint, region string", version)
    lake.sql(f"ALTER TABLE lake.{name} ADD PARTITION FIELD region")
    insert(lake, name, "SELECT id, IF(id % 2 = 0, 'north', 'south') AS region FROM range(10)")
    # briefly unpartitioned, like a late writer with the old spec
    lake.sql(f"ALTER TABLE lake.{name} DROP PARTITION FIELD region")
    change(lake, name, ["id"], "SELECT id FROM range(2)", specs=[0])
    lake.sql(f"ALTER TABLE lake.{name} ADD PARTITION FIELD region")
    insert(lake, name, "SELECT 0L AS id, 'later' AS region")
    assert {row[0] for row in spark_rows(lake, name)} == {0, *range(2, 10)}
    return name


@pytest.mark.soak
@V3
def test_the_naive_search_removes_a_needed_delete(lake: Lake, version: int) -> None:
    name = global_delete_under_an_old_spec(lake, version)
    table, dangling = lake.table(name), dangling_by_partition(lake, name)
    doomed = [delete for delete in equality_deletes(table) if str(delete.location()) in dangling]
    assert len(doomed) == 1
    table.java.newRowDelta().removeDeletes(doomed[0]).commit()
    assert sorted(row[0] for row in spark_rows(lake, name)) == [0, 0, *range(1, 10)]


@V2
def test_our_conversion_applies_it(lake: Lake, version: int) -> None:
    name = global_delete_under_an_old_spec(lake, version)
    report = convert(lake, name)
    assert (report.metrics["positions"], report.metrics["scopes"]) == (2, 1)


@pytest.mark.soak
def test_iceberg_has_fixed_its_own_search(lake: Lake) -> None:
    """Up to 1.11 ``remove-dangling-deletes`` also searched by spec and partition."""
    name = global_delete_under_an_old_spec(lake, 2)
    for id_ in (20, 21):
        insert(lake, name, f"SELECT {id_}L AS id, 'later' AS region")
    options = "map('min-input-files', '3', 'remove-dangling-deletes', 'true')"
    (done,) = lake.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => {options})").collect()
    assert (done.rewritten_data_files_count, count(lake, name, 2)) == (3, 1)
    assert sorted(row[0] for row in spark_rows(lake, name)) == [0, *range(2, 10), 20, 21]
