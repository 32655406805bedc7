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
    """A function that logs a user in and returns a client with the browser's cookie."""

    def __call__(self, role: str | None, *teams: str) -> TestClient:
        """Return the client of a user with a role, or without a login."""
        ...


@pytest.fixture(scope="session", autouse=True)
def auth_manager(airflow_home: Path) -> None:
    """Start Airflow's simple auth manager like the API server."""
    init_auth_manager()


@pytest.fixture(autouse=True)
def one_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use this connection's catalog, which the page shows without a configuration."""
    monkeypatch.setenv("AIRFLOW__LAKECDC__CATALOG_CONN_ID", "lake")


@pytest.fixture
def catalog(lake: dict[str, str]) -> CatalogConnection:
    """Return the catalog of the connection ``lake``."""
    return get_catalog("lake")


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Yield a function that logs in with Airflow's simple auth manager."""
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
    """Return the client of a user who may read."""
    return browser("VIEWER")
