"""An API server of Airflow below a sub-path, used with Chromium."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from local_services.airflow import PASSWORDS, AirflowServer


def api_server(environment: Mapping[str, str], folder: Path) -> AirflowServer:
    """Return Airflow's API server, whose page is below ``/airflow``.

    :param environment: environment of the process.
    :param folder: folder of its log and of the password of ``ann``, which is ``ann`` too.
    """
    passwords = folder / "passwords.json"
    passwords.write_text(json.dumps({"ann": "ann"}))
    users = {"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "ann:admin", PASSWORDS: str(passwords)}
    log = folder / "api-server.log"
    return AirflowServer(["api-server", "--workers", "1"], {**environment, **users}, log, path="/airflow")
