"""A user opens the page inside Airflow with Chromium; screenshots stay in ``build/page``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from playwright.sync_api import Page, expect, sync_playwright
from sqlalchemy import select, update

from airflow_provider_lakecdc.audit import Application, Run, record_application, record_health
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from airflow_provider_lakecdc.submit.job_run import JOB_RUN_KEY
from lakecdc.contract.report import JobReport, TableReport
from tests.airflow_provider_lakecdc import home
from tests.airflow_provider_lakecdc.conftest import FakeSpark, Install
from tests.airflow_provider_lakecdc.page.browser import api_server
from tests.airflow_provider_lakecdc.page.test_app import ADDRESSES
from tests.airflow_provider_lakecdc.page.test_parts import quarantined
from tests.airflow_provider_lakecdc.page.test_report import DAG as COMPACTING
from tests.airflow_provider_lakecdc.page.test_report import behave
from tests.airflow_provider_lakecdc.tables import FedTable

pytestmark = pytest.mark.services
_PATIENCE = 60_000.0
PICTURES = home.REPOSITORY / "build" / "page"
DAG = (home.REPOSITORY / "dags" / "lakecdc_replay_quarantine.py").read_text()
NOW = datetime.now(UTC)
#: data files of tables
FILES = {"orders": 14, "order_lines": 6, "customers": 1, "payments": 2, "returns": 3, "carts": 1}
#: first and last score of the measured tables
TABLES = {"orders": (93, 46), "order_lines": (88, 71), "customers": (62, 97), "payments": (99, 99), "returns": (91, 84)}


def fill(lake: dict[str, str], catalog: CatalogConnection) -> None:
    """Make a shop's lake in which only the orders need work."""
    for name, files in FILES.items():
        table = FedTable(lake, f"shop.{name}")
        for _ in range(files):
            table.ingest((NOW - timedelta(minutes=4)).isoformat())
        if name == "orders":
            table.delete(120, 80, 45, 210)
            table.delete(12, by_position=True)
    for day in range(9, -1, -1):
        measured: dict[str, dict[str, Any]] = {}
        for name, (first, last) in TABLES.items():
            score = last + (first - last) * (day / 9) ** 2 + (day * len(name)) % 5 - 2 * (day > 0)
            lost = {"deletes": (100 - score) * 0.6, "small_files": (100 - score) * 0.3, "manifests": 0.4}
            measured[f"shop.{name}"] = {
                "score": round(min(100.0, score), 1),
                "lost": lost,
                "data_files": 5 + day,
                "files_needed": 4,
                "equality_delete_files": day,
                "position_delete_files": 1,
                "deletion_vectors": 0,
                "source_lag_seconds": 240.0,
                "written_at": (NOW - timedelta(minutes=9)).isoformat(),
            }
        assert record_health(catalog, NOW - timedelta(days=day, minutes=20), measured)
    metrics: dict[str, Any] = {
        "data_files_before": 41,
        "data_files_after": 6,
        "delete_files_before": 17,
        "delete_files_after": 0,
    }
    metrics |= {"score_before": 38.0, "score_after": 98.0, "core_seconds": 12.4}
    reports = (
        TableReport("shop.customers", "done", metrics=metrics),
        TableReport("shop.orders", "conflict", reason="Another writer was faster."),
        TableReport("shop.payments", "nothing", reason="no partition has enough small files"),
    )
    begun, ended = ((NOW - timedelta(minutes=minutes)).isoformat() for minutes in (34, 31))
    report = JobReport("compact_data_files", begun, ended, "local-1", reports)
    run = Run("shop_nightly_governance", "scheduled__2026-01-01T02:10:00+00:00", "compact_data_files", 1)
    tables = tuple(each.table for each in reports)
    assert record_application(catalog, Application("1", run, report.job, tables, started_at=begun, report=report))
    quarantined(
        lake,
        *[("shop.orders", "type", NOW - timedelta(hours=hours)) for hours in (3, 5, 30)],
        ("shop.orders", "not-json", NOW - timedelta(days=2)),
    )


@pytest.fixture
def compacted(install: Install, spark_submit: FakeSpark, lake: dict[str, str]) -> str:
    """Run a task that compacts one table and fails for another; return the address of its page."""
    behave(spark_submit)
    return f"dags/shop.lake/runs/{quote(install('shop_lake', COMPACTING).test().run_id)}/tasks/compact"


@pytest.fixture
def address(
    tmp_path: Path, lake: dict[str, str], installed: dict[str, str], compacted: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Serve an Airflow with the provider installed and the replay DAG."""
    fill(lake, get_catalog("lake"))
    document: dict[str, Any] = {
        "catalog_conn_id": "lake",
        "source": {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": "debezium-json"},
        "targets": [{"table": f"shop.{name}", "key": ["id"]} for name in (*TABLES, "carts")],
        "dag_id_prefix": "shop",
        "budgets": {"nightly_governance": 0.1},
        "freshness": "30m",
        "policy": {"shop.orders": {"freshness": "2m"}},
    }
    config = tmp_path / "lakecdc.json"
    config.write_text(json.dumps(document))
    dag = home.DAGS / "shop_replay.py"
    dag.write_text(DAG)
    environment = {**installed, "LAKECDC_CONFIG": str(config), "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False"}
    subprocess.run([sys.executable, "-m", "airflow", "dags", "reserialize"], env=environment, check=True)
    try:
        with api_server(environment, tmp_path) as server:
            yield server.address
    finally:
        dag.unlink()


@pytest.fixture
def page() -> Iterator[Page]:
    """Open a window of Chromium."""
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": 1280, "height": 860})
        window.set_default_timeout(_PATIENCE)
        expect.set_options(timeout=_PATIENCE)
        yield window
        browser.close()


@contextmanager
def at_work(task: str) -> Iterator[None]:
    """Show a finished task as running for a while.

    :param task: address of its page in Airflow.
    """
    ids = {"dag_id": "shop.lake", "run_id": unquote(task.split("/")[3]), "task_id": "compact"}

    def change(state: str, finished: str | None) -> None:
        with create_session() as session:
            session.execute(update(TaskInstance).filter_by(**ids).values(state=state))
            row = session.scalars(select(XComModel).filter_by(**ids, key=JOB_RUN_KEY)).one()
            row.value = {**row.value, "finished_at": finished, "error": None}

    change("running", None)
    yield
    change("success", NOW.isoformat())


def picture(page: Page, name: str) -> None:
    """Save a screenshot."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")


def test_the_lake_is_shown(address: str, compacted: str, page: Page) -> None:
    for each in ADDRESSES:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/lakehouse/{each}")
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda said: troubles.append(said.text) if "Content Security Policy" in said.text else None)

    page.goto(f"{address}/auth/login")
    page.fill("[name=username]", "ann")
    page.fill("[name=password]", "ann")
    page.press("[name=password]", "Enter")
    entry = page.get_by_role("link", name="Lakehouse")
    entry.click()
    expect(page).to_have_url(re.compile("/airflow/plugin/lakehouse"))
    inner = page.frame_locator("iframe")
    rows = inner.locator("#tables tbody tr")
    expect(rows).to_have_count(6)
    expect(rows.first).to_contain_text("shop.orders")
    expect(rows.last).to_contain_text("not measured recently")
    picture(page, "tables")
    inner.get_by_label("Find").fill("PAY")
    expect(inner.locator("#tables tbody tr:visible")).to_have_count(1)
    inner.get_by_label("Find").fill("")

    inner.locator("#tables").get_by_role("link", name="shop.orders").click()
    expect(inner.get_by_role("heading", name="Snapshots")).to_be_visible()
    expect(inner.get_by_role("img", name="14 tiny, 0 small, 0 fit, 0 large")).to_be_visible()
    picture(page, "table")
    replay = inner.get_by_role("row", name="type 3").get_by_role("button", name="Replay")
    replay.click()
    expect(inner.get_by_role("dialog")).to_contain_text("Replay the 3 messages of shop.orders")
    picture(page, "replay")
    inner.get_by_role("button", name="Trigger the DAG").click()
    expect(inner.get_by_text("is triggered")).to_be_visible()

    inner.get_by_role("link", name="Plan").click()
    expect(inner.get_by_text("jobs would run")).to_be_visible()
    picture(page, "plan")
    inner.get_by_role("link", name="History").click()
    expect(inner.get_by_text("Another writer was faster.")).to_be_visible()
    inner.get_by_role("button", name="3 tables").click()
    expect(inner.get_by_text("41 → 6")).to_be_visible()
    picture(page, "history")
    inner.get_by_role("link", name="shop_nightly_governance").first.click()
    expect(page).to_have_url(re.compile("/airflow/dags/shop_nightly_governance/runs/scheduled__2026"))

    page.goto(f"{address}/{compacted}/details")
    page.get_by_role("link", name="Job report").click()
    expect(page).to_have_url(re.compile("/airflow/lakehouse/report"))
    expect(page.get_by_role("alert")).to_contain_text("Fix the problem above")
    expect(page.get_by_text("data files 12 → 3")).to_be_visible()
    picture(page, "report")
    with at_work(compacted):
        # a recent answer is reused for a while, but not for another question
        page.goto(f"{page.url}&lake=lake")
        status = page.get_by_role("status").filter(has_text="is working on")
        expect(status).to_contain_text("shop.orders: 1 of 2 file groups, 5 minutes left")
        picture(page, "report-at-work")
    # it refreshes by itself
    expect(status).to_have_count(0)
    page.get_by_role("link", name="compact", exact=True).click()
    expect(page).to_have_url(re.compile("/airflow/dags/shop.lake/runs/.*/tasks/compact"))
    page.goto(f"{address}/{compacted}/details")
    page.get_by_role("link", name="Table", exact=True).click()
    expect(page).to_have_url(re.compile("/airflow/lakehouse/tables"))

    # by itself, on a phone, in dark mode
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/lakehouse/tables?lake=lake")
    expect(page.locator("#tables tbody tr")).to_have_count(6)
    picture(page, "phone")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("#tables").get_by_role("link", name="shop.orders").click()
    expect(page.get_by_role("heading", name="Snapshots")).to_be_visible()
    picture(page, "phone-table")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    ids = {"dag_id": "shop.lake", "run_id": unquote(compacted.split("/")[3]), "task_id": "compact"}
    page.goto(f"{address}/lakehouse/report?{urlencode(ids)}")
    expect(page.get_by_text("data files 12 → 3")).to_be_visible()
    picture(page, "phone-report")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert troubles == []
