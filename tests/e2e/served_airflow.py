"""A separate Airflow for tests, with all its processes and its database in Postgres: its commands and its REST API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from demo.settings import CATALOG, Settings
from demo.web import web_page
from local_services.postgres import Postgres
from local_services.process import PATIENCE, free_port
from tests.conftest import interpreted
from tests.open_folder import open_folder

_API = "/api/v2"
_ANSWER_SECONDS = 300.0


class ServedAirflow:
    """An Airflow whose connections are a lake in SQLite and a Spark on one core.

    :param settings: paths of all files.
    :param dags: text of its DAG file.
    :param variables: additional environment variables.
    """

    def __init__(self, settings: Settings, dags: str, variables: Mapping[str, str]) -> None:
        self.settings, self.variables = settings, variables
        (settings.airflow_home / "dags").mkdir(parents=True)
        settings.logs.mkdir()
        self._database = ""
        (settings.airflow_home / "dags" / "test.py").write_text(dags)

    def environment(self) -> dict[str, str]:
        """Return the environment of all its processes."""
        home = self.settings.airflow_home
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "LAKECDC_"))}
        catalog = {"conn_type": "iceberg", "extra": {**self.settings.catalog_properties, "catalog_name": CATALOG}}
        return {
            **inherited,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW_CONN_LAKE": json.dumps(catalog),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            # the file does not change, and each time it is imported in a new process; see turn_on
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
            # a SQLite database is locked while a backfill is created beside the scheduler
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self._database,
            # the default of 5 s without an answer ends tries on a busy machine
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": str(_ANSWER_SECONDS),
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            # an application that outlives its task keeps the task's output open
            "AIRFLOW__WORKERS__SOCKET_CLEANUP_TIMEOUT": "5",
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
            **interpreted(),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            **self.variables,
        }

    def run(self, *arguments: str) -> None:
        """Run a command of Airflow."""
        command = [sys.executable, "-m", "airflow", *arguments]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    @contextmanager
    def served(self, *dags: str) -> Iterator[None]:
        """Run scheduler, triggerer, DAG processor and server, with these DAGs turned on as soon as they are known."""
        with open_folder() as folder, Postgres(folder / "postgres", settings={"max_connections": "200"}) as database:
            self._database = f"postgresql+psycopg2://postgres@127.0.0.1:{database.port}/postgres"
            with web_page(self.settings, self.environment(), free_port()) as page:
                # the first request builds all versions of the tasks' API, and delays all answers
                httpx.get(f"{page.address}/execution/health", timeout=_ANSWER_SECONDS).raise_for_status()
                login = {"Authorization": f"Bearer {page.token()}"}
                with httpx.Client(base_url=page.address, headers=login, timeout=_ANSWER_SECONDS) as self._client:
                    for dag in dags:
                        self.turn_on(dag)
                    yield

    def turn_on(self, dag: str) -> None:
        """Turn a DAG on as soon as it is known; its watchers begin when its file is parsed again."""
        token = self.once(partial(self.get, f"/dags/{dag}"))["file_token"]
        self.send("PATCH", f"/dags/{dag}", is_paused=False)
        answer = self._client.put(f"{_API}/parseDagFile/{token}")
        # the second means that it will be parsed anyway
        assert answer.status_code in (httpx.codes.CREATED, httpx.codes.CONFLICT), answer.text

    def get(self, path: str) -> dict[str, Any]:
        """Return the answer of the REST API; empty if there is none yet."""
        answer = self._client.get(f"{_API}{path}")
        return dict(answer.json()) if answer.is_success else {}

    def send(self, method: str, path: str, **document: Any) -> dict[str, Any]:
        """Send a change to the REST API and return its answer."""
        answer = self._client.request(method, f"{_API}{path}", json=document)
        assert answer.is_success, answer.text
        return dict(answer.json())

    def once(self, read: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """Return the first value that is not empty."""
        deadline = time.monotonic() + seconds
        while not (value := read()):
            assert time.monotonic() < deadline, self.get("/dags/~/dagRuns/~/taskInstances")
            time.sleep(1)
        return value
