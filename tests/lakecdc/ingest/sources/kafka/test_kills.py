"""A run killed between reading and recording the position is repeated: no event is lost or applied twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.report import JobReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime import failpoints
from lakecdc.runtime.run import run
from local_services.kafka import Kafka
from tests.conftest import Lake
from tests.lakecdc.ingest.histories import History
from tests.lakecdc.ingest.killing import Run, act_at
from tests.lakecdc.ingest.sources.kafka.conftest import Topics
from tests.on_demand import on_demand

pytestmark = pytest.mark.services

PARTITIONS = 2
MOMENTS = [
    "after_source_start",
    "after_read",
    "before_staging",
    "after_staging",
    "after_side_tables",
    "before_commit@2",
    "after_commit",
    "after_round",
]
# the others are close to it or to the kill below
STOPPED = on_demand(MOMENTS, in_ci=("before_commit@2",))
# a separate process takes half a minute: CI kills one, and covers other moments by fail points
KILLED = on_demand(("after_read", "after_staging", "after_side_tables", "after_commit"), in_ci=("after_commit",))


class Shop:
    """One topic, its history, a table and its change log in the lake."""

    def __init__(self, topics: Topics) -> None:
        self.topics, self.topic, self.history = topics, topics.topic("kills.t"), History.of(3, 10)
        self.produced, self.seeds = 0, itertools.count()
        self.name = topics.lake.new_name("kills")
        topics.create(self.topic, PARTITIONS)
        target = {"table": self.name, "source_table": "shop.t", "key": ["id"], "history_table": f"{self.name}_log"}
        self.spec: dict[str, Any] = topics.spec(target, topics=[self.topic], max_offsets_per_batch=10)

    def change(self, statements: int = 6) -> None:
        """Produce more statements, then some events again, as a connector does after a crash."""
        for _ in range(statements):
            self.history.statement(8)
        fresh = self.history.events[self.produced :]
        again = [e for e in fresh[:4] if not e["headers"]]
        self.topics.produce(self.topic, [*fresh, *again], PARTITIONS)
        self.produced = len(self.history.events)

    def ingest(self) -> JobReport:
        """Run the job in this process."""
        return run(parse_spec(self.spec), ingest)

    def assert_equal(self) -> None:
        """Compare table and change log, read by DuckDB."""
        assert self.topics.rows(self.name) == self.history.expected()
        # the delete and the insert of a key change share a position, and may share an offset in two partitions
        log = self.topics.lake.duckdb_rows(f"{self.name}_log", "_lakecdc_order, _lakecdc_op, id")
        assert len(log) == len(set(log)), "an event is in the change log twice"
        orders = {event["value"]["source"]["lsn"] for event in self.history.events}
        assert {int(order[20:36], 16) for order, _, _ in log} == orders


@pytest.fixture(scope="module")
def shop(kafka: Kafka, lake: Lake) -> Iterator[Shop]:
    """Return a shop whose table has been fed once."""
    fed = Shop(Topics(kafka, lake, 1000))
    fed.change()
    assert [t.outcome for t in fed.ingest().tables] == ["done"]
    yield fed


@pytest.mark.parametrize("moment", STOPPED)
def test_a_stopped_run_can_be_repeated(shop: Shop, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    shop.change()
    act_at(monkeypatch, f"{moment}=raise")
    stopped = shop.ingest()
    assert "fail point" in f"{stopped.error} {[t.reason for t in stopped.tables]}"
    monkeypatch.delenv(failpoints.VARIABLE)
    # events that arrive meanwhile must not change where the interrupted batch ends
    shop.change(2)
    again = shop.ingest()
    assert [t.outcome for t in again.tables] == ["done"], again
    shop.assert_equal()


@pytest.mark.parametrize("moment", KILLED)
def test_a_killed_run_can_be_repeated(shop: Shop, tmp_path: Path, moment: str) -> None:
    shop.change()
    assert Run(tmp_path, shop.spec, f"{moment}=kill").was_killed()
    shop.change(2)
    again = shop.ingest()
    assert [t.outcome for t in again.tables] == ["done"], again
    shop.assert_equal()
