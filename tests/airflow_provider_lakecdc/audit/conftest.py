"""A catalog with an enabled audit, and an outbox per test."""

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
    """Enable the audit; documents are in a folder of the test."""
    monkeypatch.setenv("AIRFLOW__LAKECDC__AUDIT", "True")
    monkeypatch.setenv("AIRFLOW__LAKECDC__DOCUMENTS_URI", f"file://{tmp_path}/documents")


@pytest.fixture
def catalog(lake: dict[str, str]) -> CatalogConnection:
    """Return the catalog of the connection ``lake``."""
    return get_catalog("lake")


def application(*tables: TableReport, **parts: Any) -> Application:
    """Return an application that reported these tables, by default one that is done."""
    report = JobReport("compact_data_files", now(), now(), "local-1", tables or (TableReport("shop.orders", "done"),))
    named = {"id": str(uuid.uuid4()), "run": Run("d", "r", "t", 1), "job": report.job, "tables": ("shop.orders",)}
    return Application(**{**named, "started_at": now(), "report": report, **parts})


def waiting(folder: Path) -> list[Path]:
    """Return the documents in the outboxes of a test."""
    return sorted((folder / "documents" / "lakecdc_outbox").rglob("*.json"))


def left_long_ago(folder: Path) -> None:
    """Make the documents so old that no writer owns them any more."""
    for path in waiting(folder):
        path.rename(path.with_name(f"20200101T000000_{path.name.partition('_')[2]}"))
