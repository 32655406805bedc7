"""A Spark standalone cluster and Spark's history server as local processes, from the wheel of PySpark."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from local_services.process import ANSWER_SECONDS, Service, Startable, free_port

HOST = "127.0.0.1"


class _Daemon(Service):
    """A Spark process; its port is that of its web page."""

    def environment(self) -> Mapping[str, str]:
        """Return variables that bind it to this machine's loopback address."""
        # the wheel's scripts search PySpark in the first Python of the path
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        # the scripts give a driver's JVM the second; daemons lack it, and executors inherit from them
        java = " ".join(filter(None, map(os.environ.get, ("JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"))))
        return {"SPARK_LOCAL_IP": HOST, "PATH": path, "PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": java}

    def _class(self, kind: str) -> list[str]:
        # spark-class becomes Java by exec, so that signals reach it
        return [str(Path(sys.executable).parent / "spark-class"), f"org.apache.spark.deploy.{kind}"]


class HistoryServer(_Daemon):
    """A history server of finished applications.

    :param folder: folder of its log.
    :param events: folder of the applications' event logs.
    """

    name = "spark-history-server"

    def __init__(self, folder: Path, events: Path) -> None:
        super().__init__(folder / "history-server.log")
        self._events = events

    @property
    def address(self) -> str:
        """Return the address of its page."""
        return f"http://{HOST}:{self.port}"

    def command(self) -> Sequence[str]:
        """Return the command line of the server."""
        return self._class("history.HistoryServer")

    def environment(self) -> Mapping[str, str]:
        """Return variables with its settings."""
        settings = {"fs.logDirectory": f"file://{self._events}", "fs.update.interval": "1s", "ui.port": self.port}
        options = " ".join(f"-Dspark.history.{name}={value}" for name, value in settings.items())
        return {**super().environment(), "SPARK_HISTORY_OPTS": options}

    def is_ready(self) -> bool:
        """Return whether its page answers."""
        try:
            return self.query("applications") is not None
        except (OSError, ValueError):
            return False

    def query(self, what: str) -> Any:
        """Query its REST API.

        :param what: path below ``/api/v1``.
        """
        with urllib.request.urlopen(f"{self.address}/api/v1/{what}", timeout=ANSWER_SECONDS) as answer:
            return json.load(answer)


class _Member(_Daemon):
    """Master or worker; both serve their state as JSON."""

    def __init__(self, log_file: Path) -> None:
        super().__init__(log_file)
        self.rpc_port = free_port()

    def state(self) -> dict[str, Any]:
        """Return the state on the web page, as JSON."""
        with urllib.request.urlopen(f"http://{HOST}:{self.port}/json/", timeout=ANSWER_SECONDS) as answer:
            state: dict[str, Any] = json.load(answer)
            return state

    def is_ready(self) -> bool:
        """Return whether it is active."""
        try:
            return bool(self.state())
        except (OSError, ValueError):
            return False

    def _java(self, kind: str) -> list[str]:
        return [*self._class(kind), "--host", HOST, "--port", str(self.rpc_port), "--webui-port", str(self.port)]


class _Master(_Member):
    name = "spark-master"

    def command(self) -> Sequence[str]:
        """Return the command line of the master."""
        return self._java("master.Master")

    @property
    def url(self) -> str:
        """Return the URL to submit to."""
        return f"spark://{HOST}:{self.rpc_port}"


class _Worker(_Member):
    name = "spark-worker"

    def __init__(self, folder: Path, number: int, master: _Master, *, cores: int, memory: str) -> None:
        super().__init__(folder / f"worker-{number}.log")
        self.folder, self.master, self.cores, self.memory = folder / f"worker-{number}", master, cores, memory

    def command(self) -> Sequence[str]:
        """Return the command line of the worker."""
        size = ["--cores", str(self.cores), "--memory", self.memory, "--work-dir", str(self.folder)]
        return [*self._java("worker.Worker"), *size, self.master.url]

    def is_ready(self) -> bool:
        """Return whether it is registered at the master."""
        return any(
            each["port"] == self.rpc_port and each["state"] == "ALIVE" for each in self.master.state()["workers"]
        )


class SparkCluster(Startable):
    """A standalone cluster on 127.0.0.1.

    :param folder: folder of logs and of executors' files.
    :param workers: number of workers.
    :param cores: cores per worker.
    :param memory: memory per worker for executors, in Spark's notation.
    """

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1500m") -> None:
        self._master = _Master(folder / "master.log")
        self._workers = [_Worker(folder, number, self._master, cores=cores, memory=memory) for number in range(workers)]

    @property
    def master(self) -> str:
        """Return the URL to submit to."""
        return self._master.url

    def start(self) -> Self:
        """Start it and wait until all workers are registered."""
        for daemon in (self._master, *self._workers):
            daemon.start()
        return self

    def stop(self) -> None:
        """Stop it; executors end with their workers."""
        for daemon in (*self._workers, self._master):
            daemon.stop()

    def applications(self) -> list[dict[str, Any]]:
        """Return the running applications."""
        return list(self._master.state()["activeapps"])

    def executors(self) -> list[int]:
        """Return the process ids of the running executors."""
        return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and self._is_executor(each)]

    def kill_executors(self, count: int) -> list[int]:
        """Kill executors, like the loss of a machine, and return their process ids."""
        killed = self.executors()[:count]
        for process in killed:
            os.kill(process, signal.SIGKILL)
        return killed

    def is_busy(self) -> bool:
        """Return whether an executor has started Python, which its first Python task does."""
        executors = self.executors()
        return any(_parent(each) in executors for each in Path("/proc").iterdir() if each.name.isdigit())

    def _is_executor(self, process: Path) -> bool:
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return False
        urls = {f"spark://Worker@{HOST}:{worker.rpc_port}" for worker in self._workers}
        return "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and bool(urls & {*words})


def _parent(process: Path) -> int | None:
    """Return a process' parent id, from its folder in ``/proc``."""
    try:
        # the name is in brackets and may contain anything
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
