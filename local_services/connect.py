"""A Kafka Connect worker with Debezium's connectors as a local process."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from local_services.iceberg_rest import java
from local_services.kafka import JVM, Kafka
from local_services.kafka_jars import class_path
from local_services.postgres import Postgres
from local_services.process import PATIENCE, Service, ServiceError


class Connect(Service):
    """A standalone worker; it stores the positions of connectors in a file, and continues from there after a restart.

    :param folder: offsets, settings and log, created if missing and kept after ``stop``
    :param kafka: the running broker it writes to
    :param schemas: put the schema into every message, as Connect does by default
    :param settings: worker settings that override or extend ours, such as ``offset.flush.interval.ms``
    :param jars: folders of additional jars, behind ours on the class path
    :param port: port of its REST interface; a free one if None
    """

    name = "connect"

    def __init__(
        self,
        folder: Path,
        kafka: Kafka,
        *,
        schemas: bool = False,
        settings: Mapping[str, str] | None = None,
        jars: Sequence[Path] = (),
        port: int | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.kafka = kafka
        self.schemas = schemas
        self.settings = dict(settings or {})
        self._class_path = [f"{folder}/*" for folder in jars]
        super().__init__(self.folder / "connect.log", port)

    @property
    def uri(self) -> str:
        """Return the address of the REST interface."""
        return f"http://127.0.0.1:{self.port}"

    def prepare(self) -> None:
        """Write the settings."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._settings_file.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        path = ":".join([class_path(), *self._class_path])
        return [java(), "-Xms64m", "-Xmx512m", *JVM, "-cp", path, main, str(self._settings_file)]

    def is_ready(self) -> bool:
        """Return whether the REST interface answers."""
        try:
            self.request("GET", "/connectors")
        except (OSError, ServiceError):
            return False
        return True

    def run_connector(self, name: str, settings: Mapping[str, str]) -> None:
        """Create or update a connector and wait until its task runs."""
        self.request("PUT", f"/connectors/{name}/config", {"name": name, "tasks.max": "1", **settings})
        self._wait(lambda: self._runs(name), f"the connector {name} does not run")

    def restart_connector(self, name: str) -> None:
        """Stop a connector and resume it from its position."""
        self.request("PUT", f"/connectors/{name}/stop")
        self._wait(lambda: self._state(name) == ("STOPPED", []), f"the connector {name} does not stop")
        self.request("PUT", f"/connectors/{name}/resume")
        self._wait(lambda: self._runs(name), f"the connector {name} does not run")

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call the REST interface, at a path with a leading slash; return the decoded answer, None if it is empty."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        call = urllib.request.Request(self.uri + path, method=method, data=data, headers=headers)
        try:
            with urllib.request.urlopen(call, timeout=60) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise ServiceError(f"{self.name}: {error.code} {error.read().decode(errors='replace')[:2000]}") from None
        return json.loads(text) if text else None

    def _wait(self, arrived: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not arrived():
            if time.monotonic() > deadline:
                raise ServiceError(f"{self.name}: {complaint} after {PATIENCE:.0f} s")
            time.sleep(0.1)

    def _state(self, name: str) -> tuple[str, list[dict[str, str]]]:
        """Return state and tasks of a connector."""
        try:
            status = self.request("GET", f"/connectors/{name}/status")
        except ServiceError:
            # right after the PUT the status may not exist yet
            return "", []
        return status["connector"]["state"], status["tasks"]

    def _runs(self, name: str) -> bool:
        _, tasks = self._state(name)
        failed = [task["trace"] for task in tasks if task["state"] == "FAILED"]
        if failed:
            raise ServiceError(f"{self.name}: the connector {name} failed:\n{failed[0][:3000]}")
        return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)

    @property
    def _settings_file(self) -> Path:
        return self.folder / "worker.properties"

    def _settings(self) -> dict[str, str]:
        schemas = str(self.schemas).lower()
        return {
            "bootstrap.servers": self.kafka.bootstrap_servers,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": schemas,
            "value.converter.schemas.enable": schemas,
            "offset.storage.file.filename": str(self.folder / "offsets.dat"),
            "offset.flush.interval.ms": "500",
            "listeners": self.uri,
            "rest.advertised.host.name": "127.0.0.1",
            # all connectors are on the one class path
            "plugin.discovery": "service_load",
            "connector.client.config.override.policy": "All",
            **self.settings,
        }


def postgres_connector(postgres: Postgres, name: str, tables: str) -> dict[str, str]:
    """Return the settings of a Debezium connector.

    :param name: of its topics and its slot.
    :param tables: names with schema.
    """
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": "postgres",
        "database.password": "x",
        "database.dbname": "postgres",
        "topic.prefix": name,
        "slot.name": name,
        "table.include.list": tables,
        "plugin.name": "pgoutput",
        "poll.interval.ms": "50",
        "topic.creation.default.replication.factor": "1",
    }
