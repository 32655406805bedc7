"""Keys with names that SQL would split, and keys that change in flattened events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from tests.conftest import Lake

UNCHANGED = "__debezium_unavailable_value"


def event(lsn: int, op: str, row: dict[str, Any]) -> str:
    source = {"connector": "postgresql", "schema": "s", "table": "t", "lsn": lsn, "ts_ms": 1_700_000_000_000 + lsn}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({"op": op, **images, "source": source})


def flat(lsn: int, op: str, row: dict[str, Any], old_key: dict[str, Any] | None = None) -> str:
    """Return a dumped record of a flattened event."""
    facts = {"__op": op, "__table": "t", "__lsn": lsn, "__deleted": str(op == "d").lower()}
    headers = [["__debezium.oldkey", json.dumps(old_key)]] if old_key else []
    record = {"topic": "pg.s.t", "partition": 0, "offset": lsn, "key": {"id": row["id"]}, "headers": headers}
    return json.dumps({**record, "value": {**row, **facts}})


class Fed:
    """A table fed from files of events, one run per file."""

    def __init__(self, lake: Lake, folder: Path, key: str, **source: str) -> None:
        self.lake, self.folder, self.files = lake, folder, 0
        self.source = {"type": "files", "path": f"{folder}/*.jsonl", "format": "debezium-json", **source}
        self.target: dict[str, Any] = {"table": lake.new_name("odd"), "key": [key], "source_table": "t"}

    def done(self, *lines: str) -> None:
        self.files += 1
        (self.folder / f"{self.files}.jsonl").write_text("\n".join(lines))
        report = run(parse_spec(self.lake.spec("ingest", source=self.source, target=self.target)), ingest)
        assert [t.outcome for t in report.tables] == ["done"], report.error or report.tables[0].reason

    def rows(self, columns: str) -> list[tuple[Any, ...]]:
        return sorted(self.lake.duckdb_rows(self.target["table"], columns))


@pytest.mark.soak
def test_a_key_with_a_dot_is_looked_up_and_remembered(lake: Lake, tmp_path: Path) -> None:
    fed, key = Fed(lake, tmp_path, "or`der.id"), "or`der.id"
    fed.done(event(1, "c", {key: 1, "doc": "big"}), event(2, "c", {key: 2, "doc": "two"}))
    fed.done(event(5, "u", {key: 1, "doc": UNCHANGED, "n": 5}), event(6, "d", {key: 2}))
    fed.done(event(3, "u", {key: 1, "doc": "late"}), event(4, "u", {key: 2, "doc": "late"}))
    assert fed.rows(f'"{key}", doc, n') == [(1, "big", 5)]


def test_a_flattened_key_change_keeps_omitted_values(lake: Lake, tmp_path: Path) -> None:
    fed = Fed(lake, tmp_path, "id", format="debezium-flat-json", records="kafka")
    fed.done(flat(1, "c", {"id": 1, "doc": "big"}))
    fed.done(flat(5, "d", {"id": 1, "doc": None}), flat(6, "c", {"id": 2, "doc": UNCHANGED}, {"id": 1}))
    assert fed.rows("id, doc") == [(2, "big")]
