"""Thousands of files are read once each, whatever happens in between."""

from __future__ import annotations

import pytest

from lakecdc.ingest.sources.file_memory import SUFFIX
from lakecdc.metadata.positions import MAX_BYTES
from tests.lakecdc.ingest.killing import Run
from tests.lakecdc.ingest.sources.files.conftest import Fed


def fill(fed: Fed, low: int, high: int) -> None:
    for number in range(low, high):
        (fed.folder / f"{number:05}.json").write_text(f'{{"id": {number}}}\n')


@pytest.mark.soak
def test_three_thousand_files_are_read_once_each(fed: Fed) -> None:
    fed.source = {"format": "json"}
    fed.target = {"mode": "history", "key": ["id"]}
    fill(fed, 0, 10)
    fed.run()
    fill(fed, 10, 3000)
    position = fed.run().metrics["position"]
    assert position["count"] == 3000 and len(str(position)) < MAX_BYTES
    assert len(fed.rows("id")) == 3000
    assert fed.run(outcome="nothing").metrics["files_read"] == 0
    fill(fed, 3000, 3010)
    fill(fed, 1, 2)
    assert fed.run().metrics["files_read"] == 10
    assert fed.rows("count(*), count(DISTINCT id), max(id)") == [(3010, 3010, 3009)]
    head = fed.lake.table(fed.name).head()
    assert head is not None
    fed.lake.sql(f"CALL lake.system.rollback_to_snapshot('{fed.name}', {head.parent_id})")
    assert fed.run().metrics["files_read"] == 10
    assert len(fed.rows("DISTINCT chapter", fed.name + SUFFIX)) == 1


@pytest.mark.soak
def test_a_run_killed_between_memory_and_commit_can_be_repeated(fed: Fed) -> None:
    fed.source, fed.target = {"format": "csv"}, {"key": ["id"]}
    for number in range(450):
        fed.write(f"{number}.csv", "id", str(number))
    assert Run(fed.folder.parent, fed.spec(), "after_staging=kill").was_killed()
    assert len(fed.rows("file", fed.name + SUFFIX)) == 450
    assert fed.run().metrics["files_read"] == 450
    assert len(fed.rows("file", fed.name + SUFFIX)) == 450
    assert fed.rows("count(*), count(DISTINCT id)") == [(450, 450)]
