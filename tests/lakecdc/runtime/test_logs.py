"""Log lines of a job."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lakecdc.runtime.run import log_handler, main


def test_no_line_contains_a_secret(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("lakecdc.test")
    log.addHandler(log_handler())
    try:
        raise ValueError("mysql://u:hu/sh@h/d")
    except ValueError:
        log.exception("GET failed with %s", {"Authorization": "Basic hush"})
    lines = capsys.readouterr().err
    assert "ERROR lakecdc.test: GET failed" in lines and "ValueError: mysql://u:***@h/d" in lines
    assert "hush" not in lines and "hu/sh" not in lines


def test_the_outcome_is_read_from_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text('{"version": 1, "job": "ingest", "tabels": []}')
    caplog.set_level(logging.INFO)
    code = main("ingest", ["--spec", str(spec), "--report", str(tmp_path / "report.json")])
    assert "Did you mean 'tables'" in caplog.messages[-2]
    assert caplog.messages[-1] == f"ingest: exit code {code}" == "ingest: exit code 4"
