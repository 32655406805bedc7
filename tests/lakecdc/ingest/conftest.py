"""Fixtures shared by the tests of ingestion."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lakecdc.ingest.by_spark import with_engine


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Choose the engine that folds and writes the changes of a batch during the test."""
    with with_engine(request.param):
        yield request.param


@pytest.fixture
def proven_by_log_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bounds of data files prove nothing about growing keys."""
    monkeypatch.setattr("lakecdc.ingest.apply.upsert.prove_by_bounds", lambda *_: None)
