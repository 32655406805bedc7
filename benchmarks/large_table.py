"""Measure the extra cost of a table's health where the table has too many files for a worker.

    python -m benchmarks.large_table [--files 300000]

pyiceberg makes the table from metadata alone: its data files have bounds but do not exist. A dry run of
``compact_data_files`` does nothing there, first with a table small enough for a worker to measure, then with one that
is too large, after a warm-up of the session. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from benchmarks.deletes import costs
from benchmarks.folders import emptied
from benchmarks.terminal import only_own_lines
from lakecdc.contract.spec import parse_spec
from lakecdc.metadata import health
from lakecdc.runtime.run import run, work_of

_JOB = "compact_data_files"
_FILES_OF_A_COMMIT = 10_000
_FILE_BYTES = 2**27
_ROWS = 1_000_000


class Bench:
    """One table of many files.

    :param folder: folder of the catalog and the warehouse.
    """

    def __init__(self, folder: Path, files: int) -> None:
        self._catalog = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        self._files = files

    def make(self) -> None:
        """Make the table."""
        catalog = SqlCatalog("lake", **self._catalog)
        catalog.create_namespace("bench")
        schema = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
        properties = {"write.target-file-size-bytes": str(_FILE_BYTES)}
        table = catalog.create_table("bench.large", schema, properties=properties)
        with table.update_sort_order() as update:
            update.asc("id", IdentityTransform())
        append_files(table, self._files)

    def report(self) -> dict[str, Any]:
        """Return the job's metrics of the table."""
        catalog = {"name": "lake", "properties": {"type": "sql", **self._catalog}}
        spec = {"version": 1, "job": _JOB, "catalog": catalog, "tables": ["bench.large"], "options": {"dry_run": True}}
        (table,) = run(parse_spec(spec), work_of(_JOB)).tables
        assert table.outcome == "nothing", table
        return table.metrics


def append_files(table: Table, files: int) -> None:
    """Append data files that do not exist, in commits of 10,000; each covers its own range of ids."""
    for start in range(0, files, _FILES_OF_A_COMMIT):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for number in range(start, min(start + _FILES_OF_A_COMMIT, files)):
                append.append_data_file(_file(table.location(), number))


def _file(location: str, number: int) -> DataFile:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{location}/data/{number:05d}-{number * 7919:08d}-0a1b2c3d-4e5f-6789-abcd-ef0123456789.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=_ROWS,
        file_size_in_bytes=_FILE_BYTES,
        column_sizes={1: _FILE_BYTES // 8, 2: _FILE_BYTES // 2},
        value_counts={1: _ROWS, 2: _ROWS},
        null_value_counts={1: 0, 2: 0},
        lower_bounds={1: struct.pack("<q", number * _ROWS)},
        upper_bounds={1: struct.pack("<q", (number + 1) * _ROWS - 1)},
    )
    file.spec_id = 0
    return file


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=300_000)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/large"))
    arguments = parser.parse_args()
    folder = emptied(arguments.folder, "warehouse")
    with only_own_lines(folder / "output.log"):
        bench = Bench(folder, arguments.files)
        bench.make()
        print(f"a table of {arguments.files:,} data files")
        files, results = arguments.files, {}
        for name, most in (("warm-up", files), ("without", files), ("with", files - 1)):
            health.MOST_FILES_OF_A_WORKER = most
            with costs() as cost:
                metrics = bench.report()
            assert ("health" in metrics) == (most < files), metrics
            results[name] = {"seconds": cost.seconds, "core_seconds": cost.core_seconds}
            print(f"{name}: {results[name]}")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        facts = {"files": files, "score": metrics["health"]["score"], "peak_memory_of_python_mb": memory}
        print(json.dumps({"name": "bench-large-table", **results, **facts, "cores": os.cpu_count()}))


if __name__ == "__main__":
    main()
