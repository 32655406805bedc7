"""Airflow's web page for the demo's runs."""

from __future__ import annotations

from collections.abc import Mapping

from demo.settings import Settings
from local_services.airflow import AirflowServer
from local_services.process import port_answers


def web_page(settings: Settings, environment: Mapping[str, str], port: int | None = None) -> AirflowServer:
    """Return ``airflow standalone`` on the demo's home, with scheduler, triggerer and DAG processor.

    :param port: port on 127.0.0.1; 8080, or a free one if that is in use.
    """
    return AirflowServer(
        ["standalone"],
        environment,
        settings.logs / "airflow-standalone.log",
        port or (None if port_answers(8080) else 8080),
        parts=("metadatabase", "scheduler"),
    )
