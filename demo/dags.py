"""Runs of the demo's DAGs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo.environment import DAGS, dag_file
from demo.settings import REPOSITORY, Settings
from demo.shop import OPENING

#: words in the log lines to show after a failure
_ERROR_WORDS = ("ERROR", "Error", "Exception", "exit code", ": failed", ": conflict")


class DemoError(RuntimeError):
    """A failure of the demo, with the log to read.

    :param message: what happened.
    :param log: file with the details.
    """

    def __init__(self, message: str, log: Path) -> None:
        super().__init__(message)
        self.log = log

    def excerpt(self, lines: int = 25) -> str:
        """Return the last log lines with errors, or the last lines if there are none."""
        if not self.log.exists():
            return ""
        everything = self.log.read_text(errors="replace").splitlines()
        errors = [line for line in everything if any(word in line for word in _ERROR_WORDS)]
        return "\n".join(line[:400] for line in (errors or everything)[-lines:])


@dataclass(frozen=True)
class DagRun:
    """A successful DAG run.

    :param reports: the jobs' reports by task and table.
    """

    dag: str
    reports: Mapping[str, Mapping[str, Any]]

    def total(self, metric: str) -> int:
        """Sum a metric over all tasks and tables."""
        tables = [table for report in self.reports.values() for table in report.values()]
        return int(sum((table.get("metrics") or {}).get(metric) or 0 for table in tables))


class DagRunner:
    """The process that runs DAGs, as a context manager."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._environment = environment
        self._number = 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with (self._settings.logs / "runner.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "demo.runner"],
                cwd=REPOSITORY,
                env=dict(self._environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # so that Spark, started by a task, can be stopped with it
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin:
            process.stdin.close()
        if error is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()

    def run(self, dag: str, hour: int, minute: int = 0) -> DagRun:
        """Run a DAG and wait for it.

        :param dag: one of :data:`demo.environment.DAGS`.
        :param hour: logical hour since the shop's opening.
        :param minute: minute of the logical date.
        :raises DemoError: the run failed.
        """
        self._number += 1
        log = self._settings.logs / f"{self._number:02}-{dag}.log"
        moment: datetime = OPENING + timedelta(hours=hour, minutes=minute)
        answer = self._request(
            {
                "dag_id": DAGS[dag],
                "dag_file": str(dag_file(dag)),
                "logical_date": moment.isoformat(),
                "log": str(log),
            },
            log,
        )
        if answer["state"] != "success":
            states = ", ".join(f"{task} {state}" for task, state in answer["tasks"].items())
            raise DemoError(f"The run of {DAGS[dag]} ended as {answer['state']} ({states or 'no task ran'}).", log)
        return DagRun(dag, {task: report or {} for task, report in answer["reports"].items()})

    def _request(self, request: Mapping[str, str], log: Path) -> Any:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise DemoError(f"The process that runs DAGs ended (exit code {process.wait()}).", log)
        return json.loads(line)
