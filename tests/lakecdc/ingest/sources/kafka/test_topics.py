"""Events of real topics become tables that equal the source, whatever the partitions, batches and repetitions."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from tests.lakecdc.ingest.histories import History
from tests.lakecdc.ingest.sources.kafka.conftest import Topics

pytestmark = pytest.mark.services


def only(reports: list[TableReport]) -> TableReport:
    """The one table's report, which must be fine."""
    (report,) = reports
    assert report.outcome == "done", report.reason
    return report


def test_partitions_in_several_batches_and_runs(topics: Topics) -> None:
    name, topic, history = topics.lake.new_name("kafka"), topics.topic(), History.of(1, 120)
    target = {"table": name, "key": ["id"], "partition_by": ["bucket(2, id)"]}
    topics.create(topic, 3)
    half = len(history.events) // 2
    topics.produce(topic, history.events[:half], 3)
    first = only(topics.ingest(target, topics=[topic], max_offsets_per_batch=20))
    assert first.metrics["commits"] > 2 and first.metrics["offsets_left"] == 0
    topics.produce(topic, history.events[half:], 3)
    only(topics.ingest(target, topics=[topic]))
    assert topics.rows(name) == history.expected()
    (again,) = topics.ingest(target, topics=[topic])
    assert again.outcome == "nothing"
