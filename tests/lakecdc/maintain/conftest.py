"""Fixtures of the job tests."""

from __future__ import annotations

import pytest

from lakecdc.maintain import start_tag


@pytest.fixture
def unleased(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs take no lease: their commits must be safe without one."""
    monkeypatch.setattr(start_tag, "new_lease", lambda *_: None)
