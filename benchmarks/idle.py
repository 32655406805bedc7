"""Measure an hour in which no table needs work: the worker's precheck against the same jobs on Spark.

    python -m benchmarks.idle [--tables 50] [--files 20] [--large 10000]

pyiceberg makes tables whose files are in order. Both jobs of the hourly DAG run on all of them: first as the operators
do, which check before they start Spark, then each job as a process, which the operators would start without the check.
Both must report every table as ``nothing``. Last, the check of one table of many files. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_lakecdc.governance.precheck import precheck_tables
from benchmarks.folders import emptied
from benchmarks.terminal import only_own_lines
from lakecdc.contract.report import parse_report
from lakecdc.contract.spec import parse_spec

_ROOT = Path(__file__).resolve().parents[1]
_CATALOG = "lake"
_JOBS = ("rewrite_delete_files", "compact_data_files")


class Bench:
    """Tables that need no work.

    :param folder: folder of the catalog and the warehouse.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        self._catalog = self._open()
        self._catalog.create_namespace("bench")

    def make(self, name: str, files: int) -> None:
        """Make a table with one file per partition."""
        ids = pa.table({"id": pa.array(range(files), pa.int64()), "part": pa.array(range(files), pa.int32())})
        table = self._catalog.create_table(name, ids.schema)
        with table.update_spec() as update:
            update.add_identity("part")
        table.append(ids)

    def precheck(self, tables: list[str]) -> dict[str, float]:
        """Run the precheck of both jobs."""
        begun = time.monotonic()
        for job in _JOBS:
            checked = precheck_tables(SimpleNamespace(load=self._open), parse_spec(self._spec(job, tables)))  # type: ignore[arg-type]
            assert len(checked.idle) == len(tables) and checked.is_all_idle
        return {"seconds": round(time.monotonic() - begun, 2)}

    def on_spark(self, tables: list[str]) -> dict[str, float]:
        """Run both jobs as processes, like spark-submit in client mode."""
        begun = time.monotonic()
        environment = {**os.environ, "PYTHONPATH": str(_ROOT / "spark_jobs")}
        for job in _JOBS:
            spec, report = (self._folder / f"{job}.{kind}.json" for kind in ("spec", "report"))
            spec.write_text(json.dumps(self._spec(job, tables)))
            script = str(_ROOT / "spark_jobs" / f"{job}.py")
            command = [sys.executable, script, "--spec", spec.as_uri(), "--report", report.as_uri()]
            subprocess.run(command, check=True, env=environment)
            result = parse_report(json.loads(report.read_text()))
            assert {table.outcome for table in result.tables} == {"nothing"} and len(result.tables) == len(tables)
        return {"seconds": round(time.monotonic() - begun, 2)}

    def _open(self) -> SqlCatalog:
        return SqlCatalog(_CATALOG, **{key: value for key, value in self._properties.items() if key != "type"})

    def _spec(self, job: str, tables: list[str]) -> dict[str, Any]:
        catalog = {"name": _CATALOG, "properties": self._properties}
        return {"version": 1, "job": job, "catalog": catalog, "tables": tables, "options": {}}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--files", type=int, default=20, help="data files of each")
    parser.add_argument("--large", type=int, default=10_000, help="data files of one more table")
    parser.add_argument("--folder", type=Path, default=Path("build/bench/idle"))
    arguments = parser.parse_args()
    folder = emptied(arguments.folder, "warehouse")
    with only_own_lines(folder / "output.log"):
        bench = Bench(folder)
        tables = [f"bench.table_{number}" for number in range(arguments.tables)]
        for name in tables:
            bench.make(name, arguments.files)
        print(f"{len(tables)} tables of {arguments.files} files")
        results = {"look": bench.precheck(tables), "spark": bench.on_spark(tables)}
        times = round(results["spark"]["seconds"] / results["look"]["seconds"], 1)
        bench.make("bench.large", arguments.large)
        large = {"files": arguments.large, **bench.precheck(["bench.large"])}
        facts = {"tables": len(tables), "files": arguments.files, "cores": os.cpu_count()}
        print(json.dumps({"name": "bench-idle", **results, "times_faster": times, "large": large, **facts}))


if __name__ == "__main__":
    main()
