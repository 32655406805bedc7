"""An update that omits a large value waits for the quarantined message that may have changed it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Lake
from tests.lakecdc.ingest.test_quarantine import Fed, event

UNCHANGED = "__debezium_unavailable_value"


def moved(lsn: int, key: int, row: dict[str, Any]) -> str:
    document = json.loads(event(lsn, "u", row))
    return json.dumps({**document, "before": {"id": key, "n": None, "doc": None}})


def repair(fed: Fed) -> None:
    """Correct the quarantined values and replay them."""
    table = f"lake.{fed.quarantine}"
    fed.lake.sql(f"UPDATE {table} SET raw_value = CAST(replace(CAST(raw_value AS string), '\"x\"', '2') AS binary)")
    report = fed.run("replay_quarantine").tables[0]
    assert report.outcome == "done" and fed.quarantined_rows() == [], report.reason


@pytest.mark.parametrize("apart", [pytest.param(False, marks=pytest.mark.soak), True], ids=["one batch", "several"])
def test_the_next_whole_row_ends_the_wait(lake: Lake, tmp_path: Path, apart: bool) -> None:
    fed = Fed(lake, tmp_path, n="int", doc="string")
    events = [
        *(event(1, "c", {"id": i, "n": 1, "doc": "a"}) for i in (1, 2, 3)),
        *(event(2, "u", {"id": i, "n": "x", "doc": "b"}) for i in (1, 2, 3)),
        event(3, "u", {"id": 1, "n": 3, "doc": UNCHANGED}),
        event(4, "u", {"id": 2, "n": 4, "doc": UNCHANGED}),
        event(5, "u", {"id": 2, "n": 5, "doc": "c"}),
        event(6, "u", {"id": 2, "n": 6, "doc": UNCHANGED}),
        # the row continues under another key
        moved(7, 3, {"id": 4, "n": 7, "doc": UNCHANGED}),
        event(8, "u", {"id": 4, "n": 8, "doc": UNCHANGED}),
        event(9, "c", {"id": 5, "n": 9, "doc": "a"}),
    ]
    for low, high in ((0, 8), (8, len(events))) if apart else ((0, len(events)),):
        fed.write(*events[low:high])
        report = fed.run().tables[0]
        assert report.outcome == "done", report.reason
    columns = "id, n, doc"
    assert sorted(lake.duckdb_rows(fed.name, columns)) == [(1, 1, "a"), (2, 6, "c"), (3, 1, "a"), (5, 9, "a")]
    rules = [rule for rule, _ in fed.quarantined_rows()]
    # rows followed by a whole row in their batch need not wait, but do
    assert rules.count("type") == 3 and rules.count("unchanged") == 4
    # replayed alone, rows that must wait are kept; the table has a newer row of one
    fed.run("replay_quarantine", rules=["unchanged"])
    assert [rule for rule, _ in fed.quarantined_rows()].count("unchanged") == 3
    repair(fed)
    rows = [(1, 3, "b"), (2, 6, "c"), (4, 8, "b"), (5, 9, "a")]
    assert sorted(lake.duckdb_rows(fed.name, columns)) == rows


@pytest.mark.soak
def test_checks_apply_to_a_batch_with_dependent_updates(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, n="int", doc="string")
    fed.target |= {"publish": "audited", "checks": [{"type": "condition", "condition": "n < 5"}]}
    fed.write(*(event(1, "c", {"id": i, "n": 1, "doc": "a"}) for i in (1, 2)), event(2, "u", {"id": 1, "n": "x"}))
    report = fed.run().tables[0]
    assert report.outcome == "done" and report.metrics["quarantined"] == 1, report.reason
    fed.write(event(3, "u", {"id": 2, "n": 9, "doc": UNCHANGED}))
    report = fed.run().tables[0]
    assert report.outcome == "failed" and "The batch is not published" in str(report.reason), report.metrics
    assert fed.rows() == [(1, 1), (2, 1)]
