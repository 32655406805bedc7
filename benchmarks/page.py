"""Measure how long the Lakehouse page takes to list tables with a fortnight of hourly measurements.

    python -m benchmarks.page [--tables 200] [--days 14]

pyiceberg makes the tables. Each day of measurements is one file, as compaction leaves it; today's are one file each.
Three requests are timed in a fresh process: the first, one after another measurement, and one without anything new. The
last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_provider_lakecdc.audit import HealthRow
from airflow_provider_lakecdc.audit.commit import append_once
from airflow_provider_lakecdc.audit.lake_tables import HEALTH
from airflow_provider_lakecdc.audit.outbox import Batch
from airflow_provider_lakecdc.page.lakes import Lake
from airflow_provider_lakecdc.page.lookups import MetadataCache
from airflow_provider_lakecdc.page.rendering import render
from airflow_provider_lakecdc.page.tables import tables_of
from benchmarks.assess import open_catalog
from benchmarks.folders import emptied
from benchmarks.terminal import only_own_lines

_HOURS = 24
_COMMIT_SECONDS = 60.0


def make(folder: Path, tables: int, days: int) -> None:
    """Make tables, and hourly measurements of each until now."""
    (folder / "warehouse").mkdir(parents=True)
    catalog, rows = open_catalog(folder), pa.table({"id": pa.array(range(10), pa.int64())})
    catalog.create_namespace("bench")
    for number in range(tables):
        catalog.create_table(f"bench.t{number}", rows.schema)
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    for day in range(days - 1, 0, -1):
        begins = midnight - timedelta(days=day)
        measure(folder, tables, [begins + timedelta(hours=hour) for hour in range(_HOURS)])
    for hour in range(now.hour + 1):
        measure(folder, tables, [midnight + timedelta(hours=hour)])


def measure(folder: Path, tables: int, moments: list[datetime]) -> None:
    """Write a measurement of each table for each moment, in one commit."""
    id, draw = str(uuid.uuid4()), random.Random(len(moments))
    facts = {"files_needed": 3, "source_lag_seconds": 12.0, "written_at": moments[-1].isoformat()}
    rows = [
        HealthRow(
            row_id=f"{id}/{moment:%H}/{number}",
            table=f"bench.t{number}",
            measured_at=moment,
            score=round(draw.uniform(40, 100), 1),
            lost={"deletes": draw.uniform(0, 45), "small_files": 7.0, "manifests": 0.2},
            data_files=12,
            facts=facts,
        )
        for moment in moments
        for number in range(tables)
    ]
    append_once(open_catalog(folder), Batch.of(id, HEALTH, rows), _COMMIT_SECONDS)


def seconds(lake: Lake, heads: MetadataCache, tables: int) -> float:
    """Return the seconds of one request, from the catalog to the HTML."""
    begun = time.monotonic()
    text = render("tables", lake=lake, **tables_of(lake, heads))
    elapsed = time.monotonic() - begun
    assert text.count("<tr data-name") == tables and "not measured" not in text
    return round(elapsed, 3)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/page"))
    arguments = parser.parse_args()
    folder = emptied(arguments.folder)
    with only_own_lines(folder / "output.log"):
        make(folder, arguments.tables, arguments.days)
        print(f"{arguments.tables} tables, measured each hour for {arguments.days} days")
        properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        os.environ["AIRFLOW_CONN_LAKE"] = json.dumps({"conn_type": "iceberg", "extra": properties})
        lake, heads = Lake("lake", "lake"), MetadataCache()
        measured: dict[str, Any] = {"first_seconds": seconds(lake, heads, arguments.tables)}
        measure(folder, arguments.tables, [datetime.now(UTC)])
        measured["after_measurement_seconds"] = seconds(lake, heads, arguments.tables)
        measured["unchanged_seconds"] = seconds(lake, heads, arguments.tables)
        facts = {"tables": arguments.tables, "days": arguments.days, "cores": os.cpu_count()}
        print(json.dumps({"name": "bench-page", **measured, **facts}))


if __name__ == "__main__":
    main()
