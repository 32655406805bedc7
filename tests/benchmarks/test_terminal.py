"""Benchmarks print only progress and one line of JSON, whatever the programs they start print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from local_services.paths import REPOSITORY

# foreign output first, as of a program that resets the terminal's colours without ending its line
LOUD = """
import subprocess, sys
from pathlib import Path
from benchmarks.terminal import only_own_lines
with only_own_lines(Path(sys.argv[1])):
    print("half of it")
    subprocess.run("printf '\\\\033[0mout'; printf err >&2", shell=True)
    print("[1]")
    if len(sys.argv) > 2:
        raise LookupError("it broke")
"""
SMALL = {
    "deletes": ["--rows", "20000", "--deletes", "200", "--commits", "2", "--versions", "3"],
    "idle": ["--tables", "2", "--files", "2", "--large", "10"],
    "ingest": ["--events", "2000", "--keys", "500", "--contenders", "lakecdc,merge_into"],
    "ingest_growth": ["--rows", "1000,2000", "--events", "500", "--batches", "1"],
    "layout": ["--megabytes", "1", "--files", "8", "--shapes", "deletes", "--works", "sort"],
    "lookup": ["--rows", "20000", "--commits", "5", "--target", "65536", "--keys", "20", "--timed", "2"],
    "page": ["--tables", "3", "--days", "2"],
    "plan": ["--tables", "4", "--budget", "0.5", "--sizes", "drawn"],
    "transaction": ["--inserts", "2000", "--updates", "1000"],
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python like a user in the checkout."""
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'spark_jobs'}"}
    return subprocess.run([sys.executable, *arguments], cwd=REPOSITORY, env=environment, capture_output=True, text=True)


def test_only_own_lines_are_shown(tmp_path: Path) -> None:
    done = run("-c", LOUD, str(tmp_path / "log"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "half of it\n[1]\n", "")
    assert (tmp_path / "log").read_text() == "\x1b[0mouterr"


def test_a_failure_names_the_full_log(tmp_path: Path) -> None:
    done = run("-c", LOUD, str(tmp_path / "log"), "fail")
    assert done.stdout == "half of it\n[1]\n"
    assert done.stderr.endswith(f"LookupError: it broke\nWhat Spark and the others have said is in {tmp_path}/log.\n")


@pytest.mark.soak
@pytest.mark.parametrize("name", SMALL)
def test_benchmarks_print_progress_and_one_line_of_json(name: str, tmp_path: Path) -> None:
    done = run("-m", f"benchmarks.{name}", *SMALL[name], "--folder", str(tmp_path / "bench"))
    assert done.returncode == 0 and done.stderr == "", done.stderr
    *progress, last = done.stdout.splitlines()
    assert json.loads(last)["name"] == f"bench-{name.replace('_', '-')}"
    assert progress and all(line.isprintable() and len(line) < 120 for line in progress)
    assert "CatalogNotFoundException" not in (tmp_path / "bench" / "output.log").read_text()
