"""Statistics are computed once, and again after enough row changes."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakecdc.contract.errors import InputError, SpecError
from lakecdc.contract.rewriting import ComputeStatisticsOptions
from lakecdc.iceberg import jvm, table_statistics
from lakecdc.iceberg.table import Snapshot
from lakecdc.maintain.statistics import changed_rows, compute_statistics
from tests.conftest import Lake
from tests.lakecdc.maintain.support import append, create, fill, metadata_location, run


def snapshot(number: int, operation: str = "append", **summary: int) -> Snapshot:
    """Return a snapshot with this summary."""
    texts = {key.replace("_", "-"): str(value) for key, value in summary.items()}
    return Snapshot(number, number, operation, texts, number - 1, number)


def test_rewrites_do_not_count_as_row_changes() -> None:
    ancestors = [
        snapshot(4, "replace", added_records=100, deleted_records=100),
        snapshot(3, "overwrite", added_records=5, added_equality_deletes=5),
        snapshot(2, added_records=7),
        snapshot(1, added_records=1000),
    ]
    assert changed_rows(ancestors, [1]) == 17
    assert changed_rows(ancestors, [2, 1]) == 10
    assert changed_rows(ancestors, [4]) == 0
    assert changed_rows(ancestors, [9]) == float("inf")
    with pytest.raises(SpecError, match="min_changed_ratio"):
        ComputeStatisticsOptions(min_changed_ratio=-1)


def test_stale_statistics_are_computed(lake: Lake) -> None:
    name = create(lake, 2, "d")
    assert run(lake, compute_statistics, name).reason == "the table has no snapshot"
    fill(lake, name, files=2)
    with pytest.raises(InputError, match="column 'nowhere' does not exist"):
        run(lake, compute_statistics, name, columns=["nowhere"])
    before = metadata_location(lake, name)
    assert run(lake, compute_statistics, name, columns=["id"], dry_run=True).metrics["stale"] == [
        "columns",
        "partitions",
    ]
    assert metadata_location(lake, name) == before
    report = run(lake, compute_statistics, name, columns=["id", "d"])
    assert report.outcome == "done", report.reason
    assert report.metrics["distinct_values"] == {"id": 200, "d": 2}
    metadata = lake.pyiceberg().load_table(name).metadata
    (statistics,) = metadata.statistics
    assert statistics.snapshot_id == metadata.current_snapshot_id
    assert {(tuple(b.fields), b.properties["ndv"]) for b in statistics.blob_metadata} == {((1,), "200"), ((3,), "2")}
    assert [f.snapshot_id for f in metadata.partition_statistics] == [statistics.snapshot_id]
    append(lake, name, 1000, 1010)
    assert run(lake, compute_statistics, name, columns=["id"]).outcome == "nothing"
    append(lake, name, 2000, 2020)
    assert run(lake, compute_statistics, name, columns=["id"]).metrics["distinct_values"] == {"id": 230}


def test_a_concurrent_commit_keeps_the_statistics(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2, "d")
    fill(lake, name, files=2)
    head = lake.table(name).head()
    assert head is not None
    others, actions = iter([(1000, 1010), (2000, 2010)]), jvm.spark_actions

    def after_another(spark: SparkSession) -> Any:
        append(lake, name, *next(others))
        return actions(spark)

    monkeypatch.setattr(table_statistics, "spark_actions", after_another)
    report = run(lake, compute_statistics, name, columns=["id"])
    assert report.outcome == "done", report.reason
    metadata = lake.pyiceberg().load_table(name).metadata
    assert metadata.current_snapshot_id != head.id
    assert {f.snapshot_id for f in (*metadata.statistics, *metadata.partition_statistics)} == {head.id}
    assert len(metadata.statistics) == len(metadata.partition_statistics) == 1
    assert set(metadata.refs) == {"main"}
