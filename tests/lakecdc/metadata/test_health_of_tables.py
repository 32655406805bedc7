"""Health as workers measure it, of tables that Spark wrote: pyiceberg reads what Iceberg tells of the same files."""

from __future__ import annotations

import pytest

from airflow_provider_lakecdc.health import health_of
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from tests.conftest import Lake
from tests.lakecdc.maintain.support import append, count, create, delete_by_key, run


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_of_each_kind(lake: Lake, version: int) -> None:
    name = create(lake, version, partitioned_by="d")
    for number in range(3):
        append(lake, name, 100 * number, 100 * number + 100)
    delete_by_key(lake, name, range(0, 100, 2), text="new")
    before = health_of(lake.pyiceberg().load_table(name))
    # one delete file of the partition 0, for its three older data files
    assert before is not None and (before.data_files, before.equality_deletes, before.delete_file_reads) == (7, 50, 3)
    assert run(lake, rewrite_delete_files, name).outcome == "done"
    after = health_of(lake.pyiceberg().load_table(name))
    assert after is not None and after.equality_delete_files == 0
    kinds = {2: (1, 0), 3: (0, 1)}[version]
    assert (after.position_delete_files, after.deletion_vectors) == kinds
    assert sum(kinds) == count(lake, name, 1) == after.delete_file_reads
    assert after.position_deletes == 50
    assert after.lost["deletes"] < before.lost["deletes"]
