"""All jobs on a table with two partition specs, three file formats, a branch, a tag and deletes of every kind."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.maintain.manifests import rewrite_manifests
from lakecdc.maintain.orphans.job import RemoveOrphanFiles
from lakecdc.maintain.sort import sort_data_files
from lakecdc.maintain.statistics import compute_statistics
from lakecdc.maintain.tag import tag_snapshots
from lakecdc.metadata import names
from lakecdc.runtime.run import TableWork
from tests.conftest import Lake
from tests.lakecdc.maintain.support import append, create, delete_by_key, duckdb_rows, files_on_disk, listed_files, run
from tests.versions import V3


class Remove(RemoveOrphanFiles):
    """The job with its name."""

    __name__ = "remove_orphan_files"


#: each job with its options, and whether it has work to do
NIGHT: tuple[tuple[TableWork, dict[str, Any], bool], ...] = (
    (rewrite_delete_files, {}, True),
    (sort_data_files, {}, True),
    (compact_data_files, {"older_specs": True, "add_bloom_filters": True}, True),
    (rewrite_manifests, {"min_manifests": 2}, True),
    (tag_snapshots, {"changes": [{"action": "move", "name": "published"}]}, True),
    (expire_snapshots, {"max_age": 0.0, "retain_last": 1}, True),
    (compute_statistics, {}, True),
    (Remove(), {"dry_run": False}, False),
)


def motley(lake: Lake, version: int) -> str:
    """Create the table, with a tag and a branch of its state half-way."""
    name = create(lake, version, "bucket(2, id)")
    lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS id")
    for number, data_format in enumerate(("parquet", "avro", "orc")):
        lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('write.format.default'='{data_format}')")
        append(lake, name, number, 300, step=3)
        delete_by_key(lake, name, range(30 * number, 30 * number + 10), spec_id=0)
        if data_format == "avro":
            lake.sql(f"ALTER TABLE lake.{name} REPLACE PARTITION FIELD bucket(2, id) WITH bucket(4, id)")
            for kind in ("TAG month", "TAG published", "BRANCH audit"):
                lake.sql(f"ALTER TABLE lake.{name} CREATE {kind}")
            lake.sql(f"INSERT INTO lake.{name}.branch_audit VALUES (1000, 'of the branch', 1)")
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('write.format.default'='parquet')")
    lake.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('{names.BLOOM_FILTER_COLUMNS}'='v')")
    append(lake, name, 300, 310)
    lake.sql(f"DELETE FROM lake.{name} WHERE id % 50 = 47")
    return name


def states(lake: Lake, name: str) -> list[list[Any]]:
    """Return the rows of the table, its tag and its branch."""
    versions = ("", " VERSION AS OF 'month'", " VERSION AS OF 'audit'")
    return [lake.sql(f"SELECT * FROM lake.{name}{version} ORDER BY id").collect() for version in versions]


def formats(lake: Lake, name: str) -> set[tuple[str, int]]:
    """Return the file formats and partition specs of the live data files."""
    return {(file.file_format.value, file.spec_id) for file in listed_files(lake, name, 0)}


@V3
def test_all_jobs_keep_the_rows_of_table_tag_and_branch(lake: Lake, version: int) -> None:
    name = motley(lake, version)
    before, old = states(lake, name), time.time() - 30 * 24 * 3600
    assert [len(rows) for rows in before] == [286, 189, 190]
    assert formats(lake, name) == {("PARQUET", 0), ("AVRO", 0), ("ORC", 1), ("PARQUET", 1)}
    reports: dict[str, TableReport] = {}
    for work, options, works in NIGHT:
        for path in files_on_disk(lake, name, ""):
            if Path(path[5:]).is_file():
                os.utime(path[5:], (old, old))
        job = getattr(work, "__name__")  # noqa: B009
        reports[job] = run(lake, work, name, **options)
        assert reports[job].outcome == ("done" if works else "nothing"), (job, reports[job])
    assert states(lake, name) == before
    assert formats(lake, name) == {("PARQUET", 1)}
    assert duckdb_rows(lake, name) == sorted(tuple(row) for row in before[0])
    assert reports["remove_orphan_files"].metrics["files_listed"] > 10
