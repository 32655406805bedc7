"""Airflow's server on a local port, with the processes that its command starts."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from local_services.process import ANSWER_SECONDS, Service

#: setting of the file with the users' passwords
PASSWORDS = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"


def served_at(port: int, path: str = "") -> dict[str, str]:
    """Return Airflow's settings of a server on a local port.

    :param path: path prefix of the server, with a leading slash
    """
    address = f"http://127.0.0.1:{port}{path}"
    return {
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
    }


class AirflowServer(Service):
    """A command of Airflow that serves its pages, with all processes that it starts.

    :param arguments: the command, such as ``standalone``
    :param environment: the whole environment with ``AIRFLOW_HOME``, without the settings of :func:`served_at`
    :param parts: parts of Airflow that must be healthy
    :param path: path prefix of the server, with a leading slash
    """

    name = "Airflow"
    inherits_environment = False
    signals_group = True

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log_file: Path,
        port: int | None = None,
        *,
        parts: Sequence[str] = ("metadatabase",),
        path: str = "",
    ) -> None:
        super().__init__(log_file, port)
        self._arguments, self._environment, self._parts, self._path = arguments, environment, parts, path
        generated = f"{environment['AIRFLOW_HOME']}/simple_auth_manager_passwords.json.generated"
        self._passwords = Path(environment.get(PASSWORDS, generated))

    @property
    def address(self) -> str:
        """Return the address of the pages."""
        return f"http://127.0.0.1:{self.port}{self._path}"

    @property
    def login(self) -> tuple[str, str]:
        """Return name and password of the only user; Airflow generates them if no file is set."""
        ((user, password),) = json.loads(self._passwords.read_text()).items()
        return user, password

    def token(self) -> str:
        """Return a token for Airflow's REST API or a browser's cookie ``_token``."""
        user, password = self.login
        body = json.dumps({"username": user, "password": password}).encode()
        request = urllib.request.Request(f"{self.address}/auth/token", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return str(json.load(answer)["access_token"])

    def wait(self) -> None:
        """Wait until the process ends or the user interrupts."""
        if self._process:
            self._process.wait()

    def command(self) -> Sequence[str]:
        """Return the command of Airflow, in this Python."""
        return [sys.executable, "-m", "airflow", *self._arguments]

    def environment(self) -> Mapping[str, str]:
        """Return the given environment with the address."""
        return {**self._environment, **served_at(self.port, self._path)}

    def is_ready(self) -> bool:
        """Check whether the login works and every part is healthy."""
        try:
            with urllib.request.urlopen(f"{self.address}/api/v2/monitor/health", timeout=ANSWER_SECONDS) as answer:
                health = json.load(answer)
        except (OSError, ValueError):
            return False
        return self._passwords.exists() and all(health[part]["status"] == "healthy" for part in self._parts)
