"""What it takes to assess a catalog of many tables and to plan, where few of them need anything.

    python -m benchmarks.assess [--tables 10000] [--needy 50]

The tables are made by pyiceberg. A process of its own does what the first two tasks of the hourly DAG do: it finds the
tables by a pattern, looks at each, and chooses. Its peak of memory is the operating system's figure. The last line is
JSON.
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
    """The catalog of a folder."""
    return SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")


def make(folder: Path, tables: int, needy: int) -> None:
    """Make tables of one file, and some of many small ones.

    Those of a kind share the files, and each has metadata of its own.

    :param needy: how many of them need to be compacted.
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
        # spread over the catalog, so that no thread has all of them
        is_needy = number % (tables // needy) == 0 and number // (tables // needy) < needy
        metadata.write_text(kinds["needy" if is_needy else "healthy"])
        catalog.register_table(f"bench.t{number}", metadata.as_uri())


def assess_and_plan(folder: Path) -> list[dict[str, dict[str, Any]]]:
    """What the tasks ``assess`` and ``plan`` do, the document between them included."""
    connection: Any = SimpleNamespace(load=lambda: open_catalog(folder))
    wanted = TableSelection(("bench.*",), (), {"*": TablePolicy(("*",))})
    steps = Steps({job: {} for job in _JOBS}, {"compact_data_files": ()})
    document = assess(connection, wanted, steps).to_json()
    found = parse_assessment(json.loads(document))
    return tasks_of(choose(found.actions, found.skipped), found, _JOBS)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--needy", type=int, default=50)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/assess"))
    parser.add_argument("--measure", action="store_true", help="assess what is in the folder, and say what is chosen")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.measure:
        print(json.dumps(sum(len(each["compact_data_files"]["tables"]) for each in assess_and_plan(folder))))
        return
    emptied(folder)
    with only_own_lines(folder / "output.log"):
        make(folder, arguments.tables, arguments.needy)
        print(f"{arguments.tables} tables, of which {arguments.needy} need to be compacted")
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
