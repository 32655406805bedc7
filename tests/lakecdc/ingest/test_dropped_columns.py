"""Columns dropped at the source are kept, dropped or stop the table, as the target configures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from tests.conftest import Lake

KINDS = {"id": "int32", "a": "int32", "b": "string"}


def event(lsn: int, **row: Any) -> str:
    """Return an event with the schema of its row."""
    fields = [{"field": name, "type": KINDS[name]} for name in row]
    source = {"connector": "postgresql", "schema": "s", "table": "t", "lsn": lsn, "ts_ms": lsn, "snapshot": "false"}
    payload = {"op": "c", "before": None, "after": row, "source": source}
    return json.dumps({"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": payload}) + "\n"


def test_dropped_columns_follow_the_policy(lake: Lake, tmp_path: Path) -> None:
    name = lake.new_name("dropped")

    def fed(policy: str, number: int, *events: str) -> TableReport:
        (tmp_path / f"{number}.jsonl").write_text("".join(events))
        source = {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": "debezium-json"}
        target = {"table": name, "key": ["id"], "source_table": "t", "on_dropped_column": policy}
        report = run(parse_spec(lake.spec("ingest", source=source, target=target)), ingest)
        assert not report.error, report.error
        return report.tables[0]

    assert fed("drop", 1, event(1, id=1, a=1, b="x")).outcome == "done"
    # events from before the drop still fill the column
    report = fed("drop", 2, event(2, id=2, a=2, b="y"), event(3, id=3, b="z"))
    assert report.outcome == "done" and "schema_changes" not in report.metrics, report.reason
    assert sorted(lake.duckdb_rows(name, "id, a")) == [(1, 1), (2, 2), (3, None)]
    report = fed("drop", 3, event(4, id=4, b="w"))
    assert report.metrics["schema_changes"] == ["dropped a"], report.reason
    assert "a" not in lake.table(name).column_names
    # the change stops the table until it is accepted once
    report = fed("stop", 4, event(5, id=5))
    assert report.outcome == "failed" and "dropped the columns b" in str(report.reason)
    assert fed("keep", 4, event(5, id=5)).outcome == "done"
    assert fed("stop", 5, event(6, id=6)).outcome == "done"
    assert sorted(lake.duckdb_rows(name, "id, b")) == [(1, "x"), (2, "y"), (3, "z"), (4, "w"), (5, None), (6, None)]
