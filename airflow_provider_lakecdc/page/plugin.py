"""What the page is to Airflow: a plugin, which each of its components loads and only the API server makes an app of."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

#: where the API server mounts the app, without a slash in front: Airflow's own page is at the end of any sub-path
PREFIX = "lakehouse"


class LakehousePlugin(AirflowPlugin):
    """Puts "Lakehouse" into Airflow's menu."""

    name = "lakecdc"
    external_views = [
        {
            "name": "Lakehouse",
            "href": f"{PREFIX}/tables",
            "destination": "nav",
            "url_route": PREFIX,
            "icon": f"{PREFIX}/static/icon.svg",
            "icon_dark_mode": f"{PREFIX}/static/icon-dark.svg",
        }
    ]

    @cached_property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]
        """The page's app; made when somebody asks, as schedulers and workers do not."""
        from airflow_provider_lakecdc.page.app import create_app

        return [{"app": create_app(), "url_prefix": f"/{PREFIX}", "name": "Lakehouse"}]
