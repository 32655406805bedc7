"""An API server of Airflow below a sub-path, and what a person does at it with Chromium."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from local_services.process import ANSWER_SECONDS, PATIENCE, free_port


@contextmanager
def api_server(environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Airflow's API server, whose page is below ``/airflow``; gives its address.

    :param environment: of the process.
    :param folder: for its log and the password of ``ann``, which is ``ann`` too.
    """
    address = f"http://127.0.0.1:{free_port()}/airflow"
    (folder / "passwords.json").write_text(json.dumps({"ann": "ann"}))
    settings = {
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "ann:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
    }
    port = address.partition("127.0.0.1:")[2].partition("/")[0]
    command = [sys.executable, "-m", "airflow", "api-server", "--host", "127.0.0.1", "--port", port, "--workers", "1"]
    with (folder / "api-server.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**environment, **settings},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_ready(process, address, folder / "api-server.log")
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"{address}/api/v2/version", timeout=ANSWER_SECONDS):
                return
        except OSError:
            time.sleep(0.3)
    raise AssertionError(log.read_text()[-3000:])
