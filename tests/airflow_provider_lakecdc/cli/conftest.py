"""Run commands in this process with the parser of ``python -m airflow_provider_lakecdc``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_lakecdc.__main__ import main


@dataclass(frozen=True)
class Ended:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Return the output as JSON."""
        return json.loads(self.out)


Lakecdc = Callable[..., Ended]


@pytest.fixture
def lakecdc(capsys: pytest.CaptureFixture[str]) -> Lakecdc:
    """Return a function that runs a command and returns exit code and output."""

    def run(*arguments: str) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return Ended(int(ended.value.code or 0), *capsys.readouterr())

    return run
