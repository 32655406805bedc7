"""Killed at any moment and run again, the table equals the source; a run overtaken by others is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.metadata.marked_folders import mark_in
from lakecdc.runtime.run import run
from tests.conftest import Lake
from tests.lakecdc.ingest.histories import History, lines
from tests.lakecdc.ingest.killing import Run
from tests.lakecdc.maintain.support import meanwhile


def spec_of(lake: Lake, folder: Path, name: str) -> dict[str, Any]:
    source = {"type": "files", "path": f"{folder}/*.jsonl", "format": "debezium-json", "records": "kafka"}
    return lake.spec("ingest", source=source, target={"table": name, "key": ["id"], "source_table": "t"})


def outcome(spec: dict[str, Any]) -> str:
    return run(parse_spec(spec), ingest).tables[0].outcome


@pytest.mark.soak
@pytest.mark.parametrize(("moment", "then"), [("after_staging", "done"), ("after_commit", "nothing")])
def test_a_killed_run_can_be_repeated(lake: Lake, tmp_path: Path, moment: str, then: str) -> None:
    name, history = lake.new_name("kill"), History.of(5, 20)
    (tmp_path / "a.jsonl").write_text(lines(history.events))
    spec = spec_of(lake, tmp_path, name)
    assert Run(tmp_path, spec, f"{moment}=kill").was_killed()
    assert outcome(spec) == then
    written = [row[0] for row in lake.table(name).metadata("files").select("file_path").collect()]
    assert {"ingest"} == {mark.job if (mark := mark_in(location)) else None for location in written}
    assert sorted(lake.duckdb_rows(name, "id, name, n, doc")) == history.expected()


def test_an_overtaken_run_is_refused(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, history = lake.new_name("kill"), History.of(6, 30)
    (tmp_path / "a.jsonl").write_text(lines(history.events[:10]))
    spec = spec_of(lake, tmp_path, name)
    assert outcome(spec) == "done"
    (tmp_path / "b.jsonl").write_text(lines(history.events[10:20]))

    def others() -> None:
        assert outcome(spec) == "done"
        (tmp_path / "c.jsonl").write_text(lines(history.events[20:]))
        assert outcome(spec) == "done"

    meanwhile(monkeypatch, "before_commit", others)
    report = run(parse_spec(spec), ingest)
    late = report.tables[0]
    assert (late.outcome, late.failure_class, report.exit_code()) == ("conflict", "conflict", 3)
    assert "another run has moved" in str(late.reason)
    assert sorted(lake.duckdb_rows(name, "id, name, n, doc")) == history.expected()
