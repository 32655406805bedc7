"""The Airflow plugin of the page; all components load it, but only the API server creates the app."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_lakecdc.observe.addresses import PREFIX, link_from_airflow


class LakehousePlugin(AirflowPlugin):
    """Airflow plugin that adds "Lakehouse" to the menu."""

    name = "lakecdc"
    external_views = [
        {
            "name": "Lakehouse",
            "href": link_from_airflow("tables"),
            "destination": "nav",
            "url_route": PREFIX,
            "icon": link_from_airflow("static/icon.svg"),
            "icon_dark_mode": link_from_airflow("static/icon-dark.svg"),
        }
    ]

    @cached_property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]
        """Create the page's app on first access, which schedulers and workers never do."""
        from airflow_provider_lakecdc.page.app import create_app

        return [{"app": create_app(), "url_prefix": f"/{PREFIX}", "name": "Lakehouse"}]
