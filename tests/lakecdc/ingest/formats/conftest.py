"""Fixtures shared by the tests of formats."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_cache(request: pytest.FixtureRequest) -> Iterator[None]:
    """Empty Spark's cache after each test that has a session."""
    yield
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").catalog.clearCache()
