"""Killed at any moment and run again, the table equals the source; an overtaken run is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Lake
from tests.lakecdc.ingest.histories import History, lines

MOMENTS = ["after_staging", "after_commit"]
SCRIPT = Path(__file__).parents[3] / "spark_jobs" / "ingest.py"


def start(spec: Path, report: Path, failpoint: str = "") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "LAKECDC_FAILPOINT": failpoint, "SPARK_MASTER": "local[1]"}
    command = [sys.executable, str(SCRIPT), "--spec", str(spec), "--report", str(report)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def finish(process: subprocess.Popen[bytes], report: Path) -> dict[str, Any]:
    process.wait(240)
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def write_spec(lake: Lake, folder: Path, name: str) -> Path:
    source = {"type": "files", "path": f"{folder}/*.jsonl", "format": "debezium-json", "records": "kafka"}
    path = folder / "spec.json"
    path.write_text(json.dumps(lake.spec("ingest", source=source, target={"table": name, "key": ["id"]})))
    return path


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_and_run_again(lake: Lake, tmp_path: Path, moment: str) -> None:
    name, history = lake.new_name("kill"), History.of(5, 20)
    (tmp_path / "a.jsonl").write_text(lines(history.events))
    spec = write_spec(lake, tmp_path, name)
    killed = start(spec, tmp_path / "none.json", f"{moment}=kill")
    assert killed.wait(240) == -signal.SIGKILL
    assert not (tmp_path / "none.json").exists()
    report = finish(start(spec, tmp_path / "report.json"), tmp_path / "report.json")
    assert report["tables"][0]["outcome"] == ("nothing" if moment == "after_commit" else "done"), report
    assert sorted(lake.duckdb_rows(name, "id, name, n, doc")) == history.expected()


def test_a_paused_run_is_refused_once_others_have_moved_on(lake: Lake, tmp_path: Path) -> None:
    name, history = lake.new_name("kill"), History.of(6, 30)
    (tmp_path / "a.jsonl").write_text(lines(history.events[:10]))
    spec = write_spec(lake, tmp_path, name)
    assert finish(start(spec, tmp_path / "0.json"), tmp_path / "0.json")["tables"][0]["outcome"] == "done"
    (tmp_path / "b.jsonl").write_text(lines(history.events[10:20]))
    flag = tmp_path / "paused"
    paused = start(spec, tmp_path / "paused.json", f"before_commit=pause:{flag}")
    while not flag.exists():
        assert paused.poll() is None
        time.sleep(0.1)
    for number, more in (("1", None), ("2", history.events[20:])):
        if more:
            (tmp_path / "c.jsonl").write_text(lines(more))
        report = finish(start(spec, tmp_path / f"{number}.json"), tmp_path / f"{number}.json")
        assert report["tables"][0]["outcome"] == "done"
    flag.unlink()
    late = finish(paused, tmp_path / "paused.json")["tables"][0]
    assert (late["outcome"], late["failure_class"], paused.returncode) == ("conflict", "conflict", 3)
    assert "another run has moved" in late["reason"]
    assert sorted(lake.duckdb_rows(name, "id, name, n, doc")) == history.expected()
