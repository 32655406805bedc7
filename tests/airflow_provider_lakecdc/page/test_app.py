"""Access to the page, and its errors."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi._compat import ModelField
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from airflow_provider_lakecdc.page import app
from airflow_provider_lakecdc.page.app import create_app, router
from airflow_provider_lakecdc.page.history import HistoryFilter, Task
from airflow_provider_lakecdc.submit.failures import one_line
from tests.airflow_provider_lakecdc.conftest import CATALOG_SECRET, connection
from tests.airflow_provider_lakecdc.page.conftest import Browser
from tests.airflow_provider_lakecdc.tables import FedTable

ROUTES = [route for route in create_app().routes if isinstance(route, APIRoute)]
ADDRESSES = [route.path.lstrip("/").replace("{name}", "page.css") for route in ROUTES]


def test_every_route_is_the_apps_own_and_only_reads() -> None:
    # routes that Starlette or FastAPI would add, such as a mount or the schema, have no dependencies
    assert len(create_app().routes) == len(ROUTES) == len(router.routes) > 0
    assert {method for route in ROUTES for method in route.methods} == {"GET"}


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_page_requires_a_token_and_the_right(browser: Browser, address: str) -> None:
    assert browser(None).get(address).status_code == 401
    client = browser(None)
    client.cookies.set("_token", "forged")
    assert client.get(address).status_code == 403
    # a user whom Airflow knows, without a role
    assert browser("").get(address).status_code == 403


@pytest.mark.usefixtures("lake")
@pytest.mark.parametrize("address", ADDRESSES)
def test_pages_run_only_their_own_scripts(viewer: TestClient, address: str) -> None:
    answer = viewer.get(address)
    assert answer.status_code in (200, 307, 404, 422)
    if answer.status_code in (200, 307):
        assert "script-src 'self'; " in answer.headers["content-security-policy"]


def test_only_the_static_files_of_the_page_are_served(viewer: TestClient) -> None:
    assert viewer.get("static/page.js").headers["content-type"].startswith("text/javascript")
    for name in ("..%2Fapp.py", "app.py", "%2Fetc%2Fpasswd"):
        assert viewer.get(f"static/{name}").status_code == 404


@pytest.mark.usefixtures("lake")
def test_all_addresses_are_relative(viewer: TestClient) -> None:
    assert viewer.get("").headers["location"] == "tables"
    page = viewer.get("tables").text
    addresses = re.findall(r'(?:href|src|action|data-part)="([^"]*)"', page)
    assert addresses and not any(each.startswith("/") or ":" in each for each in addresses)


@pytest.mark.usefixtures("lake")
def test_parameters_are_limited_to_the_length_of_a_name(viewer: TestClient) -> None:
    long = "a." * 30_000
    for route in ROUTES:
        strings = [field.name for field in _parameters(route) if field.field_info.annotation in (str, str | None)]
        for name in strings:
            path = route.path.lstrip("/").replace(f"{{{name}}}", long)
            answer = viewer.get(path, params={} if long in path else {name: long})
            faults = {tuple(each["loc"])[-1]: each["type"] for each in answer.json()["detail"]}
            assert (answer.status_code, faults[name]) == (422, "string_too_long"), (route.path, name)


def test_messages_are_written_outside_the_event_loop(viewer: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def line(error: Exception) -> str:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return one_line(error)

    monkeypatch.setattr(app, "one_line", line)
    monkeypatch.setenv("AIRFLOW__LAKECDC__CATALOG_CONN_ID", "elsewhere")
    assert "Connection &#39;elsewhere&#39;" in viewer.get("parts/tables").text
    assert viewer.get("parts/tables", params={"lake": "none"}).status_code == 404


def _parameters(route: APIRoute) -> Iterator[ModelField]:
    waiting = [route.dependant]
    while waiting:
        dependant = waiting.pop()
        yield from (*dependant.query_params, *dependant.path_params)
        # Airflow's own parameters are those of the task, whose limits hold first
        waiting += [each for each in dependant.dependencies if each.call in (app.PageRequest, Task, HistoryFilter)]


def test_a_missing_connection_is_reported(viewer: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__LAKECDC__CATALOG_CONN_ID", "elsewhere")
    assert viewer.get("tables").status_code == 200
    answer = viewer.get("parts/tables")
    assert answer.status_code == 502
    assert "Connection &#39;elsewhere&#39; for the Iceberg catalog" in answer.text and 'role="alert"' in answer.text


@pytest.mark.sqlite
def test_a_failed_check_is_repeated_and_shows_no_secret(
    viewer: TestClient, lake: dict[str, str], tmp_path: Path
) -> None:
    FedTable(lake)
    (tmp_path / "catalog.db").rename(tmp_path / "away.db")
    (tmp_path / "catalog.db").write_text(f"no database, {CATALOG_SECRET}")
    answer = viewer.get("parts/tables")
    assert answer.status_code == 502 and CATALOG_SECRET not in answer.text
    (tmp_path / "away.db").rename(tmp_path / "catalog.db")
    assert "shop.orders" in viewer.get("parts/tables").text


def test_several_lakes_can_be_chosen(
    viewer: TestClient, lake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FedTable(lake)
    other = {key: value.replace("catalog.db", "other.db") for key, value in lake.items()}
    FedTable(other, "shop.people")
    connection(monkeypatch, "other", conn_type="iceberg", extra={**other, "catalog_name": "lake"})
    files = {}
    for name, config in {
        "shop": {"catalog_conn_id": "lake", "tables": ["shop.*"]},
        "crm": {"catalog_conn_id": "other", "tables": ["shop.people"], "dag_id_prefix": "crm"},
        "more": {"catalog_conn_id": "other", "tables": ["shop.p*"], "dag_id_prefix": "more"},
    }.items():
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(json.dumps(config))
    monkeypatch.setenv("LAKECDC_CONFIG", str(files["shop"]))
    monkeypatch.setenv("AIRFLOW__LAKECDC__PAGE_CONFIG_FILES", f"{files['crm']}, {files['more']}")
    names = re.findall(r"<option(?: selected)?>(.*?)</option>", viewer.get("tables").text)
    assert names == ["lake", "other (crm)", "other (more)"]
    assert "shop.orders" in viewer.get("parts/tables").text
    shown = viewer.get("parts/tables", params={"lake": "other (crm)"}).text
    assert "shop.people" in shown and "shop.orders" not in shown
    unknown = viewer.get("tables", params={"lake": "<b>none</b>"})
    assert unknown.status_code == 404 and "<b>none" not in unknown.text and "does not exist" in unknown.text
    files["crm"].write_text('{"tabels": []}')
    browser_text = viewer.get("tables", params={"lake": "lake"})
    assert browser_text.status_code == 502 and "tabels" in browser_text.text
