"""What the tests of ingestion share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lakecdc.ingest.by_spark import made_by


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """What folds and writes the changes of a batch during the test."""
    with made_by(request.param):
        yield request.param


@pytest.fixture
def proven_by_log_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bounds of data files prove nothing of growing keys."""
    monkeypatch.setattr("lakecdc.ingest.apply.upsert.prove_by_bounds", lambda *_: None)
