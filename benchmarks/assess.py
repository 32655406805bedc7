"""Measure assessing and planning a catalog of many tables, few of which need work.

    python -m benchmarks.assess [--tables 10000] [--needy 50]

pyiceberg makes the tables. A separate process runs the first two tasks of the hourly DAG: it lists the tables by a
pattern, measures each, and chooses jobs. Its peak memory is the operating system's figure. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_lakecdc.governance.assess_tables import assess
from airflow_provider_lakecdc.governance.assessment import Steps, parse_assessment
from airflow_provider_lakecdc.governance.discovery import TableSelection
from airflow_provider_lakecdc.operators.plan import tasks_of
from benchmarks.folders import emptied
from benchmarks.terminal import only_own_lines
from lakecdc.metadata.plan import choose
from lakecdc.metadata.policy import TablePolicy

_JOBS = ("rewrite_delete_files", "compact_data_files")
_SMALL_FILES = 6


def open_catalog(folder: Path) -> SqlCatalog:
    """Open the catalog of a folder."""
    return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")


def make(folder: Path, tables: int, needy: int) -> None:
    """Make `tables` tables of one file, and `needy` tables of many small ones.

    Tables of a kind share their files; each has its own metadata.

    :param needy: number of tables that need compaction.
    """
    (folder / "warehouse").mkdir(parents=True)
    catalog = open_catalog(folder)
    catalog.create_namespace("models")
    rows = pa.table({"id": pa.array(range(10), pa.int64())})
    kinds = {}
    for kind, commits in (("healthy", 1), ("needy", _SMALL_FILES)):
        table = catalog.create_table(f"models.{kind}", rows.schema)
        for _ in range(commits):
            table.append(rows)
        kinds[kind] = Path(table.metadata_location.removeprefix("file://")).read_text()
    (folder / "metadata").mkdir()
    catalog.create_namespace("bench")
    for number in range(tables):
        metadata = folder / "metadata" / f"{number}.metadata.json"
        # spread over the catalog, so that the threads share them
        is_needy = number % (tables // needy) == 0 and number // (tables // needy) < needy
        metadata.write_text(kinds["needy" if is_needy else "healthy"])
        catalog.register_table(f"bench.t{number}", metadata.as_uri())


def assess_and_plan(folder: Path) -> list[dict[str, dict[str, Any]]]:
    """Run the tasks ``assess`` and ``plan``, including the document passed between them."""
    connection: Any = SimpleNamespace(load=lambda: open_catalog(folder))
    selection = TableSelection(("bench.*",), (), {"*": TablePolicy(("*",))})
    steps = Steps({job: {} for job in _JOBS}, {"compact_data_files": ()})
    document = assess(connection, selection, steps).to_json()
    assessment = parse_assessment(json.loads(document))
    return tasks_of(choose(assessment.actions, assessment.skipped), assessment, _JOBS)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--needy", type=int, default=50)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/assess"))
    parser.add_argument("--measure", action="store_true", help="assess the folder and print the number of chosen jobs")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.measure:
        print(json.dumps(sum(len(each["compact_data_files"]["tables"]) for each in assess_and_plan(folder))))
        return
    emptied(folder)
    with only_own_lines(folder / "output.log"):
        make(folder, arguments.tables, arguments.needy)
        print(f"{arguments.tables} tables, {arguments.needy} need compaction")
        begun = time.monotonic()
        command = [sys.executable, "-m", "benchmarks.assess", "--measure", "--folder", str(folder)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        seconds, used = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        chosen = json.loads(done.stdout.splitlines()[-1])
        assert chosen == arguments.needy, chosen
        measured = {
            "seconds": round(seconds, 1),
            "core_seconds": round(used.ru_utime + used.ru_stime, 1),
            "peak_memory_mb": used.ru_maxrss // 1024,
        }
        facts = {"tables": arguments.tables, "chosen": chosen, "cores": os.cpu_count()}
        print(json.dumps({"name": "bench-assess", **measured, **facts}))


if __name__ == "__main__":
    main()
