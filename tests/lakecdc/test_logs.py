"""What a job writes to its log."""

from __future__ import annotations

import logging

import pytest

from lakecdc.logs import log_handler


def test_no_line_holds_a_secret(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("lakecdc.test")
    log.addHandler(log_handler())
    try:
        raise ValueError("mysql://u:hu/sh@h/d")
    except ValueError:
        log.exception("GET failed with %s", {"Authorization": "Basic hush"})
    told = capsys.readouterr().err
    assert "ERROR lakecdc.test: GET failed" in told and "ValueError: mysql://u:***@h/d" in told
    assert "hush" not in told and "hu/sh" not in told
