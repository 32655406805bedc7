"""Airflow's web page for the demo's runs, in a process group of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from demo.dags import DemoError
from demo.settings import Settings
from local_services.process import ANSWER_SECONDS, PATIENCE, free_port, port_answers

_STOP_SECONDS = 30.0


class WebPage:
    """``airflow standalone`` on the demo's home, as a context manager.

    :param settings: the demo's settings.
    :param environment: Airflow's environment.
    :param port: port on 127.0.0.1; 8080, or a free one if that is taken.
    """

    def __init__(self, settings: Settings, environment: Mapping[str, str], port: int | None = None) -> None:
        self.port = port or (free_port() if port_answers(8080) else 8080)
        self._log = settings.logs / "airflow-standalone.log"
        self._passwords = settings.airflow_home / "simple_auth_manager_passwords.json.generated"
        self._environment = {
            **environment,
            **served_at(self.port),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self._passwords),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Return the page's address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def login(self) -> tuple[str, str]:
        """Return user and password, which Airflow generates at its first start."""
        ((user, password),) = json.loads(self._passwords.read_text()).items()
        return user, password

    def token(self) -> str:
        """Return a token for Airflow's REST API or a browser's cookie ``_token``."""
        user, password = self.login
        body = json.dumps({"username": user, "password": password}).encode()
        request = urllib.request.Request(f"{self.address}/auth/token", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return str(json.load(answer)["access_token"])

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["airflow", "standalone"],
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # signalling the parent alone would leave scheduler and server running
                start_new_session=True,
            )
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait(self) -> None:
        """Wait until the process ends or the user interrupts."""
        if self._process:
            self._process.wait()

    def stop(self) -> None:
        """Stop the whole process group."""
        process, self._process = self._process, None
        if process is None:
            return
        _signal(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while _alive(process) and time.monotonic() < deadline:
            time.sleep(0.2)
        _signal(process.pid, signal.SIGKILL)
        process.wait()

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise DemoError("Airflow's web page ended at once.", self._log)
            if self._passwords.exists() and _healthy(f"{self.address}/api/v2/monitor/health"):
                return
            time.sleep(0.5)
        raise DemoError(f"Airflow's web page is not up after {PATIENCE:.0f} s.", self._log)


def served_at(port: int) -> dict[str, str]:
    """Return Airflow's settings of a web server on a local port."""
    address = f"http://127.0.0.1:{port}"
    return {
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
    }


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
            parts = json.load(answer)
    except (OSError, ValueError):
        return False
    return all(parts[part]["status"] == "healthy" for part in ("metadatabase", "scheduler"))


def _alive(process: subprocess.Popen[bytes]) -> bool:
    """Check whether a process of the group is left; the leader must be reaped first."""
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return
