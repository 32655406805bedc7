"""Fixtures: the command line and the page, in a separate Airflow of the tests."""

from __future__ import annotations

# first of all: it points Airflow at an empty home before anything imports Airflow
import tests.airflow_provider_lakecdc.home  # noqa: F401  # isort: skip

from tests.airflow_provider_lakecdc.cli.conftest import lakecdc
from tests.airflow_provider_lakecdc.conftest import airflow_home
from tests.airflow_provider_lakecdc.page.conftest import auth_manager, browser, viewer

__all__ = ["airflow_home", "auth_manager", "browser", "lakecdc", "viewer"]
