"""Measure the cost of one more table in an application: ``govern`` over tables of small files.

    python -m benchmarks.govern [--tables 20] [--files 6]

pyiceberg makes tables of small files. The steps of the nightly DAG run in one application: first on some tables to
warm up the JVM, then on `--tables` others, where each table is compacted, and then again on the same ones, which only
need a check. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.deletes import costs
from benchmarks.folders import emptied
from benchmarks.terminal import only_own_lines
from lakecdc.contract.spec import parse_spec
from lakecdc.runtime.run import run, work_of

_CATALOG = "lake"
_STEPS = (
    *("rewrite_delete_files", "sort_data_files", "compact_data_files", "rewrite_manifests"),
    *("tag_snapshots", "expire_snapshots"),
)
_FIRST = 4


class Bench:
    """Tables of small files.

    :param folder: folder of the catalog and the warehouse.
    :param files: files per table.
    """

    def __init__(self, folder: Path, files: int) -> None:
        self._files = files
        self._properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        self._catalog = SqlCatalog(_CATALOG, **self._properties)
        self._catalog.create_namespace("bench")

    def make(self, name: str) -> str:
        """Make a table with one commit per file."""
        rows = pa.table({"id": pa.array(range(1000), pa.int64()), "v": pa.array(["text"] * 1000)})
        table = self._catalog.create_table(f"bench.{name}", rows.schema)
        for _ in range(self._files):
            table.append(rows)
        return f"bench.{name}"

    def run(self, tables: list[str], compacted: int) -> dict[str, float]:
        """Return the cost per table; exactly `compacted` tables must be compacted, none may fail."""
        with costs() as cost:
            report = run(parse_spec(self._spec(tables)), work_of("govern"))
        done = Counter(table.job for table in report.tables if table.outcome == "done")
        assert len(report.tables) == len(tables) * len(_STEPS) and done["compact_data_files"] == compacted, report
        assert report.exit_code() == 0, report
        return {
            "seconds_per_table": round(cost.seconds / len(tables), 2),
            "core_seconds_per_table": round(cost.core_seconds / len(tables), 2),
        }

    def _spec(self, tables: list[str]) -> dict[str, Any]:
        catalog = {"name": _CATALOG, "properties": {"type": "sql", **self._properties}}
        options = {"steps": [{"job": job} for job in _STEPS]}
        return {"version": 1, "job": "govern", "catalog": catalog, "tables": tables, "options": options}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--files", type=int, default=6, help="data files of each")
    parser.add_argument("--folder", type=Path, default=Path("build/bench/govern"))
    arguments = parser.parse_args()
    count, folder = arguments.tables, emptied(arguments.folder, "warehouse")
    with only_own_lines(folder / "output.log"):
        bench = Bench(folder, arguments.files)
        first = [bench.make(f"first_{number}") for number in range(_FIRST)]
        tables = [bench.make(f"table_{number}") for number in range(count)]
        bench.run(first, len(first))
        results = {"little_to_do": bench.run(tables, count), "nothing_to_do": bench.run(tables, 0)}
        facts = {"steps": len(_STEPS), "tables": count, "files": arguments.files, "cores": os.cpu_count()}
        print(json.dumps({"name": "bench-govern", **results, **facts}))


if __name__ == "__main__":
    main()
