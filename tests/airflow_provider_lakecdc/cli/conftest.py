"""Runs commands in this process, by the parser of ``python -m airflow_provider_lakecdc``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_lakecdc.__main__ import main


@dataclass(frozen=True)
class Ended:
    """How a command has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """What it has printed, as JSON."""
        return json.loads(self.out)


Lakecdc = Callable[..., Ended]


@pytest.fixture
def lakecdc(capsys: pytest.CaptureFixture[str]) -> Lakecdc:
    """Runs a command; gives back exit code and output."""

    def run(*arguments: str) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return Ended(int(ended.value.code or 0), *capsys.readouterr())

    return run
