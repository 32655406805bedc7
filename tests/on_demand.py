"""Cases that CI leaves to ``make test-soak``."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def on_demand(cases: Iterable[Any], *, in_ci: Container[Any]) -> list[Any]:
    """Parameters of a test, marked to be run on demand unless they are for CI.

    :param cases: a value each, or a tuple of the values of several parameters.
    """
    return [case if case in in_ci else _soak(*case if isinstance(case, tuple) else (case,)) for case in cases]


def _soak(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.soak)
