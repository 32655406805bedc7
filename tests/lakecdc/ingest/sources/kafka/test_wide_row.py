"""Two topics make one wide row, with any partitions, batches and repetitions."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.lakecdc.ingest.merging.test_ingest import Log
from tests.lakecdc.ingest.sources.kafka.conftest import Topics

pytestmark = pytest.mark.services


def test_two_topics_make_a_wide_row(topics: Topics) -> None:
    name, log, rng = topics.lake.new_name("wide"), Log(), random.Random(3)
    groups = [{"columns": [table], "source_table": f"shop.{table}"} for table in ("person", "address")]
    target: dict[str, Any] = {"table": name, "key": ["id"], "source_tables": ["shop\\..*"], "deletes": "resolved"}
    target["merge"] = {"groups": groups}
    by_table: dict[str, dict[int, Any]] = {"person": {}, "address": {}}
    names = {table: topics.topic(f"shop.{table}") for table in by_table}
    for topic in names.values():
        topics.create(topic, 2)
    for _ in range(3):
        for table, rows in by_table.items():
            events = []
            for _ in range(12):
                key = rng.randrange(5)
                deleted = key in rows and rng.random() < 0.3
                events.append(log.event(table, "d" if deleted else "u", {"id": key, table: f"{log.lsn}"}))
                rows.pop(key) if deleted else rows.update({key: f"{log.lsn - 10}"})
            # a restarted connector sends its last events again
            topics.produce(names[table], [*events, *events[-4:]], 2)
        (report,) = topics.ingest(target, topics=[*names.values()], max_offsets_per_batch=15)
        assert report.outcome == "done", report.reason
        keys = sorted({*by_table["person"], *by_table["address"]})
        expected = [(key, *(rows.get(key) for rows in by_table.values())) for key in keys]
        assert topics.rows(name, "id, person, address") == expected
