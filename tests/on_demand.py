"""Cases that CI leaves to ``make test-soak``."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def on_demand(cases: Iterable[Any], *, in_ci: Container[Any]) -> list[Any]:
    """Return parameters of a test, marked to run on demand unless they are for CI.

    :param cases: values, or tuples of the values of several parameters.
    """
    return [case if case in in_ci else _soak(*case if isinstance(case, tuple) else (case,)) for case in cases]


def _soak(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.soak)
