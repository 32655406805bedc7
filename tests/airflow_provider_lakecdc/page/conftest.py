"""The page's app below a prefix, as Airflow mounts it, with Airflow's own auth manager."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from airflow.api_fastapi.app import get_auth_manager, init_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI
from fastapi.testclient import TestClient

from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from airflow_provider_lakecdc.page.app import create_app


class Browser(Protocol):
    """Logs somebody in: makes a client with the cookie that a browser has then."""

    def __call__(self, role: str | None, *teams: str) -> TestClient:
        """The client of somebody with a role, or of nobody."""
        ...


@pytest.fixture(scope="session", autouse=True)
def auth_manager(airflow_home: Path) -> None:
    """Airflow's simple auth manager, as the API server starts it."""
    init_auth_manager()


@pytest.fixture(autouse=True)
def one_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a configuration the page shows the catalog of this connection."""
    monkeypatch.setenv("AIRFLOW__LAKECDC__CATALOG_CONN_ID", "lake")


@pytest.fixture
def catalog(lake: dict[str, str]) -> CatalogConnection:
    """The catalog of the connection ``lake``."""
    return get_catalog("lake")


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Logs in with Airflow's simple auth manager."""
    server = FastAPI()
    server.mount("/lakehouse", create_app())
    with TestClient(server, base_url="http://airflow/lakehouse/", follow_redirects=False) as client:

        def log_in(role: str | None, *teams: str) -> TestClient:
            client.cookies.clear()
            if role is not None:
                name = "-".join([role.lower(), *teams])
                user = SimpleAuthManagerUser(username=name, role=role or None, teams=[*teams])
                client.cookies.set("_token", get_auth_manager().generate_jwt(user))
            return client

        yield log_in


@pytest.fixture
def viewer(browser: Browser) -> TestClient:
    """A client of somebody who may read."""
    return browser("VIEWER")
