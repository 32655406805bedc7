"""What the page is to Airflow: a plugin, which each of its components loads and only the API server makes an app of."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_lakecdc.page.addresses import PREFIX, link_from_airflow


class LakehousePlugin(AirflowPlugin):
    """Puts "Lakehouse" into Airflow's menu."""

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
        """The page's app; made when somebody asks, as schedulers and workers do not."""
        from airflow_provider_lakecdc.page.app import create_app

        return [{"app": create_app(), "url_prefix": f"/{PREFIX}", "name": "Lakehouse"}]
