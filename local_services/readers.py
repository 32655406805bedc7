"""Engines as local processes: Trino behind REST catalogs, ClickHouse."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from local_services.process import ANSWER_SECONDS, PATIENCE, Service, ServiceError, Startable
from local_services.reader_tools import CLICKHOUSE, TRINO, trino_command

_PROGRAM = Path(__file__).with_name("clickhouse_program.py")


class QueryError(RuntimeError):
    """An engine refused a query, for the reason in the message."""


#: settings of a Trino catalog with tables in local folders
LOCAL_FILES = {"fs.local.enabled": "true", "local.location": "/"}


class Trino(Service):
    """Trino with the tables of REST catalogs.

    :param folder: folder of its settings and its log
    :param catalogs: settings of each catalog by name, including ``iceberg.rest-catalog.uri``
    :param java: additional options of its Java
    """

    name = "trino"

    def __init__(self, folder: Path, catalogs: Mapping[str, Mapping[str, str]], java: Sequence[str] = ()) -> None:
        self.folder, self._catalogs, self._java = folder.absolute(), catalogs, java
        super().__init__(self.folder / "trino.log")

    def prepare(self) -> None:
        """Write its settings."""
        TRINO.check()
        server = {
            "http-server.http.port": self.port,
            "node.bind-ip": "127.0.0.1",
            "node.internal-address": "127.0.0.1",
            "node.environment": "test",
            "discovery.uri": f"http://127.0.0.1:{self.port}",
            "catalog.config-dir": self.folder / "catalogs",
            "query.max-memory-per-node": "300MB",
            "memory.heap-headroom-per-node": "200MB",
        }
        (self.folder / "catalogs").mkdir(parents=True, exist_ok=True)
        rest = {"connector.name": "iceberg", "iceberg.catalog.type": "rest"}
        files: dict[str, Mapping[str, object]] = {"config": server}
        files |= {f"catalogs/{name}": {**rest, **settings} for name, settings in self._catalogs.items()}
        for file, settings in files.items():
            text = "".join(f"{key}={value}\n" for key, value in settings.items())
            (self.folder / f"{file}.properties").write_text(text)

    def working_folder(self) -> Path:
        """Return its folder, as it writes into the current one."""
        return self.folder

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        return trino_command(self.folder / "config.properties", self.folder / "data", self._java)

    def is_ready(self) -> bool:
        """Return whether it lists itself among the active nodes."""
        try:
            return self.rows("SELECT 1") == [[1]]
        except (OSError, QueryError):
            return False

    def rows(self, query: str) -> list[list[Any]]:
        """Return the answer to a query, with values as in Trino's JSON."""
        answer = self._request("/v1/statement", query)
        rows: list[list[Any]] = []
        until = time.monotonic() + PATIENCE
        while True:
            rows += answer.get("data") or []
            if "error" in answer:
                raise QueryError(answer["error"]["message"])
            if "nextUri" not in answer:
                return rows
            if time.monotonic() > until:
                raise QueryError(f"no answer in {PATIENCE:.0f} s")
            answer = self._request(answer["nextUri"].partition(f":{self.port}")[2])

    def _request(self, path: str, query: str | None = None) -> dict[str, Any]:
        headers = {"X-Trino-User": "lakecdc", "X-Trino-Time-Zone": "UTC"}
        # without it times are rounded to milliseconds
        headers["X-Trino-Client-Capabilities"] = "PARAMETRIC_DATETIME"
        body = query.encode() if query is not None else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers)
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return dict(json.load(answer))


class ClickHouse(Startable):
    """A ClickHouse process that reads tables in local folders."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        """Start the process."""
        CLICKHOUSE.check()
        python = CLICKHOUSE.folder / "bin" / "python"
        # it reads nothing outside its folder
        self._process = subprocess.Popen(
            [str(python), "-P", str(_PROGRAM)], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def stop(self) -> None:
        """Stop the process if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()

    def table(self, query: str) -> Any:
        """Return the answer to a query as an Arrow table."""
        import pyarrow as pa

        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise ServiceError("ClickHouse is not running. Call start() first")
        print(json.dumps(query), file=process.stdin, flush=True)
        line = process.stdout.readline()
        if not line:
            raise ServiceError(f"ClickHouse has ended with {process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise QueryError(answer["error"])
        return pa.ipc.open_file(base64.b64decode(answer["arrow"])).read_all()
