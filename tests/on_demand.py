"""Cases that CI leaves to ``make test-soak``."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def on_demand(cases: Iterable[Any], *, in_ci: Container[Any]) -> list[Any]:
    """Parameters of a test, marked to be run on demand unless they are for CI."""
    return [case if case in in_ci else pytest.param(case, marks=pytest.mark.soak) for case in cases]
