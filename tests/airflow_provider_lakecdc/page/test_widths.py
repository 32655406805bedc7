"""The pages at the widths of a desk, a tablet and a phone, light and dark; screenshots stay in ``build/page``."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvicorn
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI
from playwright.sync_api import BrowserContext, expect, sync_playwright

from airflow_provider_lakecdc.audit import record_health
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.page.app import create_app
from lakecdc.contract.report import TableReport
from local_services.process import free_port
from tests.airflow_provider_lakecdc import home
from tests.airflow_provider_lakecdc.page.test_ingestion import ingested, record_ingestion
from tests.airflow_provider_lakecdc.page.test_parts import quarantined
from tests.airflow_provider_lakecdc.page.test_tables import health
from tests.airflow_provider_lakecdc.tables import FedTable

pytestmark = pytest.mark.services
PICTURES = home.REPOSITORY / "build" / "page"
NOW = datetime.now(UTC)
PAGES = ("tables", "ingestion", "history", "plan", "costs")
WIDTHS = (1440, 768, 390)


@pytest.fixture
def served(lake: dict[str, str]) -> Iterator[str]:
    """Serve the app in this process."""
    mounted, port = FastAPI(), free_port()
    mounted.mount("/lakehouse", create_app())
    server = uvicorn.Server(uvicorn.Config(mounted, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    yield f"http://127.0.0.1:{port}/lakehouse"
    server.should_exit = True
    thread.join()


@pytest.fixture
def window(served: str) -> Iterator[BrowserContext]:
    """Open Chromium with a logged-in user."""
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="ann", role="VIEWER"))
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        context = browser.new_context()
        context.add_cookies([{"name": "_token", "value": token, "url": served}])
        yield context
        browser.close()


@pytest.fixture
def shop(lake: dict[str, str], catalog: CatalogConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make four tables: one needs work, one has failed and is late."""
    names = [f"shop.{name}" for name in ("orders", "order_lines", "customers", "payments")]
    for minutes, name in zip((4, 6, 9, 55), names, strict=True):
        FedTable(lake, name).ingest((NOW - timedelta(minutes=minutes)).isoformat())
    path, targets = tmp_path / "page.json", [{"table": name, "key": ["id"]} for name in names]
    path.write_text(json.dumps({"catalog_conn_id": "lake", "targets": targets, "freshness": "10m"}))
    monkeypatch.setenv("AIRFLOW__LAKECDC__PAGE_CONFIG_FILES", str(path))
    quarantined(lake, ("shop.orders", "type", NOW))
    for days in (1, 0):
        scores = {name: health(95.0 - 9 * number, deletes=5.0 + 9 * number) for number, name in enumerate(names)}
        scores["shop.orders"] = health(46.0 + days, deletes=40.0, small_files=14.0 - days)
        assert record_health(catalog, NOW - timedelta(days=days), scores)
    reason = (
        "the replication slot lakecdc_shop was dropped, and the log since then is gone. Create it again by loading the "
        "tables with full_load, then clear the task"
    )
    for hours in range(12, -1, -2):
        tables = [TableReport(name, "done", metrics=ingested(100 + 37 * hours * len(name))) for name in names[:3]]
        failed = TableReport(names[3], "failed", reason, metrics=ingested(2, quarantined=3))
        record_ingestion(catalog, f"i{hours}", hours, *tables, failed)


@pytest.mark.parametrize("tables", [0, 4])
def test_pages_fit_every_width(
    tables: int, window: BrowserContext, served: str, request: pytest.FixtureRequest
) -> None:
    pages = [*PAGES]
    if tables:
        request.getfixturevalue("shop")
        pages.append("table?name=shop.orders")
    PICTURES.mkdir(parents=True, exist_ok=True)
    page, troubles = window.new_page(), list[str]()
    page.on("pageerror", lambda error: troubles.append(str(error)))
    for name in pages:
        page.goto(f"{served}/{name}")
        expect(page.locator("[aria-busy]")).to_have_count(0)
        if name == "history" and tables:
            first = page.get_by_role("button", name="4 tables").first
            expect(page.locator("tr.opened:visible")).to_have_count(7)
            first.click()
            expect(page.locator("tr.opened:visible")).to_have_count(10)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                stem = f"{name.partition('?')[0]}-{tables}-{width}-{scheme}"
                page.screenshot(path=PICTURES / f"{stem}.png", animations="disabled")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
    assert troubles == []
