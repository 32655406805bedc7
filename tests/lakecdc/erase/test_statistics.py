"""Statistics that still contain the key of a deleted row are found and deleted."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakecdc.erase import job as job_module
from lakecdc.erase.job import erase_rows
from lakecdc.iceberg.jvm import jvm
from lakecdc.iceberg.table_statistics import compute_columns, compute_partitions, partition_statistics
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.expire import expire_snapshots
from tests.conftest import Lake
from tests.lakecdc.maintain.support import append, create, head, run

ERASED, STATISTICS = 2, "metadata/partition-stats*.parquet"


def keys_in_statistics(folder: Path) -> set[int | None]:
    """Return the keys in partition statistics files, without using the job's own reader."""
    tables = [pq.read_table(file) for file in folder.rglob(STATISTICS)]
    return {row.get("id") for table in tables for row in table["partition"].to_pylist()}


def plant(lake: Lake, name: str, file: Path) -> None:
    """Register a file as the head's partition statistics, as an engine with incremental statistics does."""
    table = lake.table(name).refresh()
    of_head = jvm(lake.spark).org.apache.iceberg.ImmutableGenericPartitionStatisticsFile.builder()
    of_head = of_head.snapshotId(head(lake, name)).path(f"file:{file}").fileSizeInBytes(file.stat().st_size).build()
    table.java.updatePartitionStatistics().setPartitionStatistics(of_head).commit()


def test_partition_statistics_of_an_older_spec_lose_the_key(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2, "id")
    lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS id")
    append(lake, name, 1, 4)
    lake.sql(f"ALTER TABLE lake.{name} REPLACE PARTITION FIELD id WITH bucket(2, id)")
    lake.sql(f"DELETE FROM lake.{name} WHERE id = {ERASED}")
    compute_partitions(lake.table(name), head(lake, name))
    folder = Path(lake.table(name).location.removeprefix("file:"))
    (statistics,) = folder.rglob(STATISTICS)
    planted, forgotten = (statistics.with_name(f"partition-stats-{n}.parquet") for n in (1, 2))
    for copy in (planted, forgotten):
        copy.write_bytes(statistics.read_bytes())
    run(lake, compact_data_files, name, older_specs=True)
    # its manifests no longer contain files of the older spec
    append(lake, name, 4, 5)
    plant(lake, name, planted)
    compute_columns(lake.table(name), head(lake, name), ["id"])
    run(lake, expire_snapshots, name, max_age=0, retain_last=1)
    assert ERASED in keys_in_statistics(folder) and not statistics.exists()
    lake.sql(f"CREATE TABLE lake.{name}_keys USING iceberg AS SELECT {ERASED}L AS id")

    dry = run(lake, erase_rows, name, keys_table=f"{name}_keys", dry_run=True)
    assert dry.metrics["places"][-1]["files_with_keys"] == {"statistics": 1, "unreferenced": 1}
    forgotten.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(job_module, "drop_statistics", lambda *_: 0)
        failed = run(lake, erase_rows, name, keys_table=f"{name}_keys")
    assert (failed.outcome, failed.metrics["files_with_keys"]) == ("failed", 1)

    done = run(lake, erase_rows, name, keys_table=f"{name}_keys")
    assert (done.outcome, done.metrics["statistics_deleted"]) == ("done", 1), done.reason
    assert ERASED not in keys_in_statistics(folder) and not partition_statistics(lake.table(name))
    # the head's sketch does not contain it
    assert done.metrics["places"][-1]["files"]["statistics"] == 1
    assert sorted(lake.duckdb_rows(name, "id")) == [(1,), (3,), (4,)]
