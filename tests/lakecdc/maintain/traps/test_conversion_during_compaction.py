"""A running compaction overlooks a conversion committed with ``RewriteFiles``, and deleted rows return.

The compaction reads at one sequence number and keeps it for its output, so it ignores newer equality deletes: they
still apply. A snapshot of the operation ``replace`` is not searched for new position deletes.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.commit import RowChanges, replace_data_files
from lakecdc.iceberg.staging import stage_rows
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, create, insert, run, spark_rows
from tests.lakecdc.maintain.traps.naive import convert_with_rewrite_files, data_files
from tests.versions import V2, V3


def compaction_around(lake: Lake, version: int, conversion: Callable[[str], object]) -> str:
    """Run a compaction that begins before an equality delete and ends after its conversion."""
    name = create(lake, "id bigint NOT NULL, v string", version)
    # a remaining file keeps Iceberg from dropping delete files by age, which is another trap
    insert(lake, name, "SELECT 500L AS id, 'stays' AS v")
    insert(lake, name, "SELECT id, 'a' AS v FROM range(20)")
    table = lake.table(name)
    start = table.head()
    assert start is not None
    (old,) = (file for file in data_files(lake, name) if file.recordCount() == 20)
    compacted = stage_rows(table, table.read(start.id, where="id < 100").coalesce(1))
    change(lake, name, ["id"], "SELECT id FROM range(5)")
    conversion(name)
    assert len(spark_rows(lake, name)) == 16
    replace_data_files(table, RowChanges(compacted, removed_rows=[old]), start)
    return name


@pytest.mark.soak
@V3
def test_the_naive_conversion_loses_the_deletes(lake: Lake, version: int) -> None:
    """If this ever fails, Iceberg recognizes the conversion."""
    name = compaction_around(lake, version, lambda name: convert_with_rewrite_files(lake, name))
    assert {row[0] for row in spark_rows(lake, name)} == {*range(20), 500}


@V2
def test_our_conversion_makes_the_compaction_fail(lake: Lake, version: int) -> None:
    names: list[str] = []

    def ours(name: str) -> None:
        names.append(name)
        assert run(lake, name).outcome == "done"

    with pytest.raises(ConflictError, match="found new"):
        compaction_around(lake, version, ours)
    assert {row[0] for row in spark_rows(lake, names[0])} == {*range(5, 20), 500}
