"""End or pause a job at a named moment, in this process or in its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lakecdc.runtime import failpoints
from local_services.process import PATIENCE
from tests.conftest import interpreted

SCRIPTS = Path(__file__).parents[3] / "spark_jobs"


def act_at(monkeypatch: pytest.MonkeyPatch, failpoint: str) -> None:
    """Let jobs of this process act at a moment, whatever moments they have passed before.

    :param failpoint: see ``lakecdc.runtime.failpoints``; empty for none.
    """
    failpoints._passes.clear()
    monkeypatch.setenv(failpoints.VARIABLE, failpoint)


class Run:
    """One run of a job's script.

    :param folder: for spec and report.
    :param spec: the spec document.
    :param failpoint: see ``lakecdc.runtime.failpoints``.
    """

    def __init__(self, folder: Path, spec: dict[str, Any], failpoint: str) -> None:
        self.report_file = folder / "report-of-process.json"
        spec_file = folder / "spec-of-process.json"
        spec_file.write_text(json.dumps(spec))
        script = SCRIPTS / f"{spec['job']}.py"
        environment = {**os.environ, **interpreted(), failpoints.VARIABLE: failpoint, "SPARK_MASTER": "local[1]"}
        command = [sys.executable, str(script), "--spec", str(spec_file), "--report", str(self.report_file)]
        with (folder / "log-of-process.txt").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stderr=log, stdout=log)

    def was_killed(self) -> bool:
        """Wait for the end; check that SIGKILL ended the process and no report was written."""
        return self.process.wait(PATIENCE) == -signal.SIGKILL and not self.report_file.exists()

    def wait_for(self, flag: Path) -> None:
        """Wait until the process has written a file."""
        deadline = time.monotonic() + PATIENCE
        while not flag.exists():
            assert self.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)

    def report(self) -> dict[str, Any]:
        """Wait for the end and read the report."""
        self.process.wait(PATIENCE)
        report: dict[str, Any] = json.loads(self.report_file.read_text())
        return report
