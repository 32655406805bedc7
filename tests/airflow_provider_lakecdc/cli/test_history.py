"""The command ``history`` over rows recorded by operators and others."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecdc.audit import Application, Run, record_application
from airflow_provider_lakecdc.cli.run import DAG_ID
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from lakecdc.contract.report import JobReport, TableReport
from tests.airflow_provider_lakecdc.cli.conftest import Ended, Lakecdc
from tests.airflow_provider_lakecdc.conftest import FakeSpark
from tests.airflow_provider_lakecdc.tables import FedTable


@pytest.fixture(autouse=True)
def audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: dict[str, str]) -> None:
    """Enable the audit, with outbox and catalog in a folder of the test."""
    monkeypatch.setenv("AIRFLOW__LAKECDC__AUDIT", "True")
    monkeypatch.setenv("AIRFLOW__LAKECDC__DOCUMENTS_URI", f"file://{tmp_path}/documents")
    FedTable(lake)


def ran(job: str, ago: timedelta, *tables: TableReport, **parts: Any) -> None:
    """Record an application that ended some time ago."""
    moment = (datetime.now(UTC) - ago).isoformat()
    report = JobReport(job, moment, moment, "local-1", tables)
    names = tuple(table.table for table in tables)
    run = Run("lakecdc_nightly_governance", "scheduled__1", job, 1)
    assert record_application(
        get_catalog("lake"), Application(str(uuid.uuid4()), run, job, names, moment, report, **parts)
    )


def jobs(ended: Ended) -> list[tuple[str, str]]:
    return [(row["job"], row["table"]) for row in ended.document]


@pytest.fixture
def days() -> None:
    """Record the applications of three days."""
    orders, items = (
        TableReport("shop.orders", "done", metrics={"core_seconds": 3.25}),
        TableReport("shop.items", "done"),
    )
    ran("sort_data_files", timedelta(days=3), orders, items)
    predicted = {"compact_data_files": {"shop.orders": 4.0}}
    ran("compact_data_files", timedelta(days=1, hours=1), orders, predicted_core_seconds=predicted)
    failed = TableReport("crm.people", "conflict", "Another writer was faster.", "conflict")
    ran("expire_snapshots", timedelta(hours=2), failed)


@pytest.mark.usefixtures("days")
def test_the_newest_are_first_and_can_be_filtered(lakecdc: Lakecdc) -> None:
    last, compacted = ("expire_snapshots", "crm.people"), ("compact_data_files", "shop.orders")
    first = [("sort_data_files", "shop.items"), ("sort_data_files", "shop.orders")]
    every = jobs(lakecdc("history", "--catalog", "lake", "--json"))
    assert every[:2] == [last, compacted] and sorted(every[2:]) == first
    for arguments, expected in {
        ("shop.orders",): [compacted, first[1]],
        ("shop.orders", "crm.people"): [last, compacted, first[1]],
        ("shop.*", "!shop.items"): [compacted, first[1]],
        ("--since", "36h"): [last, compacted],
        ("--since", (datetime.now(UTC) - timedelta(hours=3)).replace(tzinfo=None).isoformat()): [last],
        ("shop.*", "--limit", "1"): [compacted],
        ("shop.orders", "shop.items", "--limit", "1"): [compacted],
        ("nothing.*",): [],
    }.items():
        assert jobs(lakecdc("history", *arguments, "--catalog", "lake", "--json")) == expected, arguments


@pytest.mark.usefixtures("days")
def test_costs_and_reasons_are_shown(lakecdc: Lakecdc, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, newest, compacted, *_ = lakecdc("history", "--catalog", "lake").out.splitlines()
    assert newest.split()[:5] == ["2", "h", "expire_snapshots", "crm.people", "conflict"]
    assert newest.endswith("  Another writer was faster.")
    assert compacted.split()[5:] == ["3.25", "of", "4.00"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    out = re.sub(r"\x1b\[[\d;]*m", "", lakecdc("history", "--catalog", "lake").out)
    assert max(map(len, out.splitlines())) <= 80 and "…" not in out


def test_a_job_run_by_hand_is_included(lakecdc: Lakecdc, spark_submit: FakeSpark) -> None:
    lakecdc("run", "tag_snapshots", "--catalog", "lake", "--tables", "shop.orders", "--dry-run")
    lakecdc("run", "remove_orphan_files", "--catalog", "lake", "--tables", "shop.orders", "--dry-run")
    assert spark_submit.calls
    (row,) = lakecdc("history", "shop.orders", "--catalog", "lake", "--json").document
    assert (row["dag_id"], row["outcome"], row["is_dry_run"]) == (DAG_ID, "done", True)
    assert row["triggering_user_name"] and row["run_id"].startswith("manual__")
    assert "done (dry)" in lakecdc("history", "--catalog", "lake").out


def test_an_empty_history_has_a_message(lakecdc: Lakecdc) -> None:
    ended = lakecdc("history", "--catalog", "lake")
    assert (ended.code, ended.out) == (0, "No matching rows are recorded.\n")
    assert lakecdc("history", "--catalog", "lake", "--json").document == []


@pytest.mark.parametrize("since", ["yesterday", "7", "d"])
def test_an_invalid_moment_is_refused(lakecdc: Lakecdc, since: str) -> None:
    ended = lakecdc("history", "--catalog", "lake", "--since", since)
    assert ended.code == 4 and f"Invalid --since '{since}'. Use " in ended.err
