"""A late row of a snapshot never overwrites a change nor restores a deleted key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from tests.conftest import Lake

Row = dict[str, Any]


def dms(op: str, row: Row, second: int) -> str:
    operation = {"r": "load", "u": "update", "d": "delete", "t": "truncate-table"}[op]
    kind = "control" if op == "t" else "data"
    place = {"schema-name": "s", "table-name": "t", "timestamp": f"2026-01-01T00:00:{second:02}Z"}
    return json.dumps({"data": row, "metadata": {"record-type": kind, "operation": operation, **place}})


def canal(op: str, row: Row, second: int) -> str:
    kind = {"r": "INIT", "u": "UPDATE", "d": "DELETE", "t": "TRUNCATE"}[op]
    place = {"database": "s", "table": "t", "isDdl": op == "t", "es": 1_700_000_000_000 + second * 1000, "id": second}
    return json.dumps({"type": kind, "data": None if op == "t" else [row], **place})


def maxwell(op: str, row: Row, second: int) -> str:
    kind = {"r": "bootstrap-insert", "u": "update", "d": "delete"}[op]
    return json.dumps({"type": kind, "database": "s", "table": "t", "ts": 1_700_000_000 + second, "data": row})


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("dms-json", dms),
        pytest.param("canal-json", canal, marks=pytest.mark.soak),
        pytest.param("maxwell-json", maxwell, marks=pytest.mark.soak),
    ],
)
def test_changes_are_newer_than_late_snapshot_rows(
    lake: Lake, tmp_path: Path, name: str, event: Callable[[str, Row, int], str]
) -> None:
    table = lake.new_name("late")
    source = {"type": "files", "path": f"{tmp_path}/*.jsonl", "format": name}
    target = {"table": table, "source_table": "t", "key": ["id"], "columns": {"id": "bigint", "n": "bigint"}}
    spec = parse_spec(lake.spec("ingest", source=source, target=target))

    def rows(*lines: str) -> list[tuple[Any, ...]]:
        (tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl").write_text("\n".join(lines))
        report = run(spec, ingest).tables[0]
        assert report.outcome == "done", report.reason
        return sorted(lake.duckdb_rows(table, "id, n"))

    def row(id: int, n: int) -> Row:
        return {"id": id, "n": n}

    # in one batch, then the rest of the load in the next
    first = [event("u", row(1, 2), 5), event("r", row(1, 1), 9), event("u", row(2, 2), 6), event("d", row(3, 1), 7)]
    assert rows(*first) == [(1, 2), (2, 2)]
    assert rows(*[event("r", row(id, 1), 9) for id in (2, 3, 4)]) == [(1, 2), (2, 2), (4, 1)]
    if name != "maxwell-json":
        # a load after a TRUNCATE stays, one from before it does not
        emptied = event("t", {}, 20)
        assert rows(emptied, event("r", row(5, 1), 21), event("r", row(6, 1), 19)) == [(5, 1)]
        assert rows(event("r", row(3, 3), 22), event("r", row(4, 1), 18)) == [(3, 3), (5, 1)]
