"""A catalog whose audit is on, and an outbox of the test's own."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecdc.audit import Application, Run
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from lakecdc.contract.report import JobReport, TableReport, now


@pytest.fixture(autouse=True)
def audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit is on; documents are in a folder of the test's own."""
    monkeypatch.setenv("AIRFLOW__LAKECDC__AUDIT", "True")
    monkeypatch.setenv("AIRFLOW__LAKECDC__DOCUMENTS_URI", f"file://{tmp_path}/documents")


@pytest.fixture
def catalog(lake: dict[str, str]) -> CatalogConnection:
    """The catalog of the connection ``lake``."""
    return get_catalog("lake")


def application(*tables: TableReport, **parts: Any) -> Application:
    """An application that has reported these tables, by default one that is done."""
    report = JobReport("compact_data_files", now(), now(), "local-1", tables or (TableReport("shop.orders", "done"),))
    named = {"id": str(uuid.uuid4()), "run": Run("d", "r", "t", 1), "job": report.job, "tables": ("shop.orders",)}
    return Application(**{**named, "started_at": now(), "report": report, **parts})


def waiting(folder: Path) -> list[Path]:
    """Documents in the outboxes of a test."""
    return sorted((folder / "documents" / "lakecdc_outbox").rglob("*.json"))


def left_long_ago(folder: Path) -> None:
    """Let the documents be so old that no writer holds them any more."""
    for path in waiting(folder):
        path.rename(path.with_name(f"20200101T000000_{path.name.partition('_')[2]}"))
