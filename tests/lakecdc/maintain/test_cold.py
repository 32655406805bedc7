"""Jobs and the planning worker leave the same cold files alone and report them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_lakecdc.lake.assess_table import Idle, OpenTable, assess_job
from lakecdc.contract.options import OPTIONS
from lakecdc.maintain import cold
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.sort import sort_data_files
from lakecdc.metadata.work import Work
from tests.conftest import Lake
from tests.lakecdc.maintain.support import create, head, live_files, run, spark_rows

FILES = 5


def append_day(lake: Lake, name: str, days_ago: int) -> None:
    """Append overlapping small files to the partition of a day, one commit each."""
    day = (datetime.now(UTC) - timedelta(days=days_ago)).date()
    for number in range(FILES):
        rows = f"SELECT id * 10 + {number} AS id, 'old' AS v, DATE'{day}' AS d FROM range(0, 20, 1, 1)"
        lake.sql(f"INSERT INTO lake.{name} {rows}")


def assess(lake: Lake, name: str, job: str, **options: Any) -> Any:
    return assess_job(OpenTable(lake.pyiceberg().load_table(name)), job, OPTIONS[job](**options))


@pytest.mark.parametrize("transform", ["month(d)", "days(d), d"])
def test_old_partitions_and_tagged_files_stay(lake: Lake, transform: str) -> None:
    name = create(lake, 2, transform, "id bigint NOT NULL, v string, d date")
    append_day(lake, name, 400)
    lake.sql(f"ALTER TABLE lake.{name} CREATE TAG cold")
    old, rows = live_files(lake, name), spark_rows(lake, name)
    for marked in ({"cold_after_days": 90}, {"cold_tag": "cold"}):
        for job, work in (("compact_data_files", compact_data_files), ("sort_data_files", sort_data_files)):
            options = {**marked, **({"columns": ["id"]} if work is sort_data_files else {})}
            planned = assess(lake, name, job, **marked)
            report = run(lake, work, name, **options)
            assert report.outcome == "nothing" and f"{FILES} cold files of" in (report.reason or "")
            assert report.metrics["cold_files_left"] == FILES
            if work is compact_data_files:
                assert isinstance(planned, Idle)
                assert planned.reason == report.reason and planned.metrics.items() <= report.metrics.items()
    append_day(lake, name, 0)
    planned = assess(lake, name, "compact_data_files", cold_after_days=90, cold_tag="cold")
    assert isinstance(planned, Work) and planned.reason.startswith(f"{FILES} files")
    report = run(lake, sort_data_files, name, columns=["id"], cold_after_days=90)
    assert report.outcome == "done" and report.metrics["data_files_removed"] == FILES
    assert report.metrics["overlap_depth_after"] == 1
    assert report.metrics["cold_files_by_age"] == FILES and old < live_files(lake, name)
    assert run(lake, compact_data_files, name, cold_tag="another").metrics["data_files_removed"] == FILES
    assert not old & live_files(lake, name) and len(spark_rows(lake, name)) == 2 * len(rows)


def test_archived_files_stay_and_their_class_is_looked_up_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, 2, columns="id bigint NOT NULL, v string, d date")
    append_day(lake, name, 0)
    archived = sorted(live_files(lake, name))[:2]
    looked_up: list[str] = []

    def look_up(properties: Any, locations: Any) -> dict[str, str]:
        looked_up.extend(locations)
        return {each: "GLACIER" if each in archived else "STANDARD" for each in locations}

    monkeypatch.setattr(cold, "storage_classes", look_up)
    report = run(lake, compact_data_files, name, cold_storage_classes=["GLACIER"], min_input_files=2)
    assert report.outcome == "done" and "2 by their storage class" in (report.reason or "")
    assert report.metrics["data_files_removed"] == FILES - 2 and len(looked_up) == FILES
    assert set(archived) < live_files(lake, name)
    assert report.snapshot_after == str(head(lake, name))
