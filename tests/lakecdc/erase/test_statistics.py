"""Statistics that name a key long after its row has gone are found, and go with it."""

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

GONE, STATISTICS = 2, "metadata/partition-stats*.parquet"


def keys_in_statistics(folder: Path) -> set[int | None]:
    """Keys that files of partition statistics have, read without the job's own reading."""
    tables = [pq.read_table(file) for file in folder.rglob(STATISTICS)]
    return {row.get("id") for table in tables for row in table["partition"].to_pylist()}


def plant(lake: Lake, name: str, file: Path) -> None:
    """Have a file be the head's statistics of partitions, as an engine leaves it that adds to those of before."""
    table = lake.table(name).refresh()
    made = jvm(lake.spark).org.apache.iceberg.ImmutableGenericPartitionStatisticsFile.builder()
    made = made.snapshotId(head(lake, name)).path(f"file:{file}").fileSizeInBytes(file.stat().st_size).build()
    table.java.updatePartitionStatistics().setPartitionStatistics(made).commit()


def test_partition_statistics_of_an_older_spec_do_not_keep_a_key(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2, "id")
    lake.sql(f"ALTER TABLE lake.{name} SET IDENTIFIER FIELDS id")
    append(lake, name, 1, 4)
    lake.sql(f"ALTER TABLE lake.{name} REPLACE PARTITION FIELD id WITH bucket(2, id)")
    lake.sql(f"DELETE FROM lake.{name} WHERE id = {GONE}")
    compute_partitions(lake.table(name), head(lake, name))
    folder = Path(lake.table(name).location.removeprefix("file:"))
    (made,) = folder.rglob(STATISTICS)
    planted, forgotten = (made.with_name(f"partition-stats-{n}.parquet") for n in (1, 2))
    for copy in (planted, forgotten):
        copy.write_bytes(made.read_bytes())
    run(lake, compact_data_files, name, older_specs=True)
    # its manifests name the files of the older spec no more
    append(lake, name, 4, 5)
    plant(lake, name, planted)
    compute_columns(lake.table(name), head(lake, name), ["id"])
    run(lake, expire_snapshots, name, max_age=0, retain_last=1)
    assert GONE in keys_in_statistics(folder) and not made.exists()
    lake.sql(f"CREATE TABLE lake.{name}_keys USING iceberg AS SELECT {GONE}L AS id")

    dry = run(lake, erase_rows, name, keys_table=f"{name}_keys", dry_run=True)
    assert dry.metrics["places"][-1]["files_with_keys"] == {"statistics": 1, "unreferenced": 1}
    forgotten.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(job_module, "drop_statistics", lambda *_: 0)
        failed = run(lake, erase_rows, name, keys_table=f"{name}_keys")
    assert (failed.outcome, failed.metrics["files_with_keys"]) == ("failed", 1)

    done = run(lake, erase_rows, name, keys_table=f"{name}_keys")
    assert (done.outcome, done.metrics["statistics_deleted"]) == ("done", 1), done.reason
    assert GONE not in keys_in_statistics(folder) and not partition_statistics(lake.table(name))
    # the sketch of the head knows nothing of it
    assert done.metrics["places"][-1]["files"]["statistics"] == 1
    assert sorted(lake.duckdb_rows(name, "id")) == [(1,), (3,), (4,)]
