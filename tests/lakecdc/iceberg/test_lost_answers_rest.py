"""A gateway before a REST catalog loses answers and requests, or answers for the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from lakecdc.iceberg import lost_answers
from tests.conftest import Lake
from tests.lakecdc.iceberg.faults import ways
from tests.lakecdc.iceberg.faults.strikes import Fault
from tests.lakecdc.iceberg.faults.work import KINDS, Place, some_of, survive
from tests.on_demand import on_demand

pytestmark = pytest.mark.services
STATUSES = (500, 502, 503, 504)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_answers, "WAIT_SECONDS", 0.01)


@pytest.fixture(scope="module")
def rest(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ways.rest(lake, tmp_path_factory.mktemp("lossy_rest")) as place:
        yield place


@pytest.mark.parametrize("kind", some_of("append", "tag"))
def test_a_gateway_asks_to_retry_a_commit_that_arrived(rest: Place, kind: str) -> None:
    """The client sends the commit again, and the catalog refuses it because the table has changed."""
    survive(rest, KINDS[kind], Fault("answer", status=503, retry_after=True))


# the client's reaction to a status does not depend on what was lost, and is the same to all but 503
@pytest.mark.parametrize(
    ("lost", "status"),
    on_demand(product(("answer", "request"), STATUSES), in_ci=[("answer", 500), ("answer", 503), ("request", 503)]),
)
@pytest.mark.parametrize("kind", some_of("append"))
def test_a_gateway_answers_for_the_catalog(rest: Place, kind: str, lost: str, status: int) -> None:
    survive(rest, KINDS[kind], Fault(lost, status=status))
