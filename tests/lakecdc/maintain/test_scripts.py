"""The scripts as users and the operator start them: a spec in, a report and an exit code out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import Lake, interpreted
from tests.lakecdc.maintain.support import count, create, fill

SCRIPTS = Path(__file__).parents[3] / "spark_jobs"
JOBS = [
    "govern",
    *("sort_data_files", "compact_data_files", "rewrite_manifests", "tag_snapshots", "expire_snapshots"),
    *("remove_orphan_files", "expire_partitions", "rebucket", "compute_statistics", "clean_side_tables"),
    *("rollback_tables", "reconcile", "export_changes", "check_tables", "restore_moment", "scd2"),
    *("erase_rows", "set_readers", "rebuild_keys"),
]

#: runs all scripts in one process
EACH = """
import json, runpy, sys

scripts, folder, *jobs = sys.argv[1:]
sys.path.insert(0, scripts)
codes = {}
for job in jobs:
    sys.argv = [job, "--spec", f"{folder}/{job}.json", "--report", f"{folder}/report-{job}.json"]
    try:
        runpy.run_path(f"{scripts}/{job}.py", run_name="__main__")
    except SystemExit as ended:
        codes[job] = ended.code
print(json.dumps(codes))
"""


def start(job: str, spec: object, folder: Path) -> tuple[int, dict[str, Any]]:
    """Run a script; return its exit code and report."""
    (folder / "spec.json").write_text(json.dumps(spec))
    command = [sys.executable, str(SCRIPTS / f"{job}.py"), "--spec", f"{folder}/spec.json", "--report"]
    environment = os.environ | interpreted() | {"SPARK_MASTER": "local[1]"}
    code = subprocess.run([*command, f"{folder}/report.json"], env=environment, check=False).returncode
    return code, json.loads((folder / "report.json").read_text())


def test_a_bad_spec_is_refused_with_exit_code_4(tmp_path: Path) -> None:
    for job in JOBS:
        spec = {"version": 1, "job": job, "options": {"dryrun": True}}
        (tmp_path / f"{job}.json").write_text(json.dumps(spec))
    command = [sys.executable, "-c", EACH, str(SCRIPTS), str(tmp_path), *JOBS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == dict.fromkeys(JOBS, 4), done.stderr
    for job in JOBS:
        report = json.loads((tmp_path / f"report-{job}.json").read_text())
        assert report["job"] == job
        assert "'dry_run'" in str(report["error"]) and report["failure_class"] == "bad input"


def test_a_table_is_compacted_although_another_is_missing(lake: Lake, tmp_path: Path) -> None:
    name = create(lake, 3)
    beside = create(lake, 2)
    for table in (name, beside):
        fill(lake, table)
    options = {"side_tables": [name, beside, "test.not_made_yet", "nowhere.either"]}
    spec = lake.spec("compact_data_files", "test.nowhere", name, options=options)
    code, report = start("compact_data_files", spec, tmp_path)
    assert code == 4
    missing, *done = report["tables"]
    assert missing["outcome"] == "failed"
    # only the existing side table, and only once
    assert [(each["table"], each["outcome"]) for each in done] == [(name, "done"), (beside, "done")]
    assert [count(lake, table, 0) for table in (name, beside)] == [1, 1]
