"""Spark reads the rows that workers recorded, and our own jobs keep the tables small."""

from __future__ import annotations

# first of all: it points Airflow at an empty home before anything imports Airflow
import tests.airflow_provider_lakecdc.home as home  # isort: skip

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecdc.audit import Application, Run, health_history, history, record_application, record_health
from airflow_provider_lakecdc.audit.views import costs, hurting, orphans, savings
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.hooks.connections import SecretEnvironment
from lakecdc.contract.report import JobReport, TableReport
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.maintain.expire_partitions import expire_partitions
from lakecdc.metadata import names
from tests.conftest import CATALOG, Lake
from tests.lakecdc.maintain.support import live_files, run

PAGE = Path(home.REPOSITORY, "docs", "guides", "audit.md").read_text()
NOW = datetime.now(UTC)


@pytest.fixture
def catalog(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogConnection:
    """Return the session's catalog as a worker opens it, with twelve runs on two tables and some old ones."""
    monkeypatch.setenv("AIRFLOW__LAKECDC__DOCUMENTS_URI", f"file://{tmp_path}/documents")
    connection = CatalogConnection(CATALOG, {**lake.properties}, {**lake.properties}, SecretEnvironment(CATALOG))
    for number in range(12):
        assert record_application(connection, ran(number))
    for number in range(12, 15):
        assert record_application(connection, ran(number, timedelta(days=400)))
    for score in (90.0, 50.0):
        rows = {
            "shop.orders": {"score": score, "delete_read_cost": 1, "source_lag_seconds": score},
            "shop.items": {"score": 70.5},
        }
        assert record_health(connection, NOW - timedelta(milliseconds=score), rows)
    return connection


def ran(number: int, ago: timedelta = timedelta()) -> Application:
    """Return the application of a number, always the same."""
    finished = NOW - ago - timedelta(milliseconds=number)
    metrics = {"core_seconds": number / 4, "bytes_written": number, "data_files_before": 9, "data_files_after": 2,
               "delete_read_cost_before": 4.5, "delete_read_cost_after": 0}  # fmt: skip
    if number == 3:
        metrics |= {"orphan_files": 5, "orphan_bytes": 50, "files_taken": 3, "bytes_taken": 30}
    tables = (
        TableReport("shop.orders", "done", metrics=metrics),
        TableReport("shop.items", "failed", "no", metrics={} if number % 2 else metrics),
    )
    report = JobReport("compact_data_files", finished.isoformat(), finished.isoformat(), "local-1", tables)
    return Application(f"a{number}", Run("d", "r", "t", 1), report.job, ("shop.orders",), report.started_at, report)


def test_spark_and_python_answer_alike_before_and_after_maintenance(lake: Lake, catalog: CatalogConnection) -> None:
    answers = _answers(lake)
    what_ran, hurts, lags, cost, saved, unused = answers
    rows = history(catalog, since=NOW - timedelta(days=30), limit=1000)
    assert len(what_ran) == len(rows) == 24
    assert (
        [(row.table, row.score) for row in hurting(health_history(catalog))]
        == [(row["table"], row["score"]) for row in hurts]
        == [("shop.orders", 50.0), ("shop.items", 70.5)]
    )
    assert [row["source_lag_seconds"] for row in lags] == [90.0, 50.0, None, None]
    assert [(c.day, c.table, c.runs, c.failed, c.core_seconds, c.bytes_written) for c in costs(rows)] == [
        (r["day"], r["table"], r["runs"], r["failed"], r["core_seconds"] or 0, r["bytes_written"] or 0) for r in cost
    ]
    assert (
        [(s.table, s.job, s.core_seconds, s.delete_read_cost, s.data_files) for s in savings(rows)]
        == [(r["table"], r["job"], r["core_seconds"], r["delete_read_cost"], r["data_files"]) for r in saved]
        == [("shop.orders", "compact_data_files", 16.5, 54.0, 84.0)]
    )

    assert (
        [(o.table, o.files, o.bytes) for o in orphans(rows)]
        == [(r["table"], r["files"], r["bytes"]) for r in unused]
        == [("shop.orders", 2, 20)]
    )

    old = {"time_column": "finished_at", "max_age": 300 * 86400.0}
    assert run(lake, expire_partitions, names.AUDIT, **old).metrics["rows_removed"] == 6
    assert run(lake, compact_data_files, names.AUDIT).outcome == "done"
    expiry = {"older_than": datetime.now(UTC).isoformat(), "retain_last": 1}
    assert run(lake, expire_snapshots, names.AUDIT, **expiry).outcome == "done"
    assert len(lake.pyiceberg().load_table(names.AUDIT).metadata.snapshots) == 1
    assert len(live_files(lake, names.AUDIT)) == 1
    assert _answers(lake) == answers
    assert history(catalog, limit=1000) == rows
    # an application delivered earlier is recognized, and a new one is not
    assert record_application(catalog, ran(3)) and record_application(catalog, ran(99))
    assert len(history(catalog, limit=1000)) == 26


def _answers(lake: Lake) -> list[list[Any]]:
    """Run the statements of the page and return their rows."""
    for name in (names.AUDIT, names.HEALTH):
        lake.sql(f"REFRESH TABLE {CATALOG}.{name}")
    statements = re.findall(r"^```sql audit\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [lake.sql(statement).collect() for statement in statements]
