"""The script as users run it: from the checkout, with two documents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, create, insert, pyiceberg_rows

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.soak
def test_the_script_converts_and_reports(lake: Lake, tmp_path: Path) -> None:
    name = create(lake, "id bigint, v string", 3)
    insert(lake, name, "SELECT id, 'a' AS v FROM range(10)")
    change(lake, name, ["id"], "SELECT id FROM range(4)")
    plain = create(lake, "id bigint", 2)
    spec, report = tmp_path / "spec.json", tmp_path / "report.json"
    spec.write_text(json.dumps(lake.spec("rewrite_delete_files", name, plain, "test.missing")))
    script = ROOT / "spark_jobs" / "rewrite_delete_files.py"
    # without settings of this test's own session
    foreign = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYTHONPATH")
    environment = {key: value for key, value in os.environ.items() if key not in foreign}
    done = subprocess.run(
        [sys.executable, str(script), "--spec", str(spec), "--report", str(report)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    # a missing table is bad input, and the other tables are still converted
    assert done.returncode == 4, done.stderr[-3000:]
    first, second, third = json.loads(report.read_text())["tables"]
    assert (first["outcome"], first["metrics"]["positions"]) == ("done", 4)
    assert first["metrics"]["deletion_vectors_added"] == 1
    assert second["outcome"] == "nothing"
    assert (third["outcome"], third["failure_class"]) == ("failed", "bad input")
    assert [row[0] for row in pyiceberg_rows(lake, name)] == [4, 5, 6, 7, 8, 9]
