"""Measure jobs on a table whose deleted keys do not fit into memory, and a plain read of it with Iceberg.

    python -m benchmarks.spill [--rows 5000000] [--keys 10000000] [--heap 1g] [--version 2]

The table has string keys of 36 characters in files whose ranges overlap, so that each equality delete applies to each
file, as a writer leaves them that is not converted for long. Most deleted keys match no row; a fifth of the rows is
deleted. Each job is a separate process with two tasks in one heap, and starts from the same snapshot. ``iceberg`` reads
all rows with Iceberg's reader, like any other Spark application: it may fail, or not end within ``--patience`` seconds;
its figures then record that. Memory is the resident peak of the JVM and of all Python processes. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.encodings import ENCODINGS
from benchmarks.folders import emptied
from benchmarks.memory import peak_resident
from benchmarks.terminal import only_own_lines
from lakecdc.contract.spec import parse_spec
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN
from lakecdc.export.job import export_changes
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import WrittenFile, describe, stage_rows
from lakecdc.iceberg.table import IcebergTable, carrier_of
from lakecdc.ingest.job import ingest
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.sort import sort_data_files
from lakecdc.metadata import names
from lakecdc.moments.job import restore_moment
from lakecdc.runtime.run import each_table, run
from lakecdc.runtime.session import open_session
from lakecdc.writer.parquet import ArrowFile, FileLayout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG, _NAME, _HISTORY = "lake", "bench.orders", "bench.orders_history"
_KEY = "md5(cast(id AS string))"
_PARTS = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
_UUID = "concat_ws('-', " + ", ".join(f"substr(m, {begin}, {length})" for begin, length in _PARTS) + ") AS id"
_FILES, _COMMITS, _KEYS_A_FILE = 10, 10, 500_000
_METRICS = ("rows", "rows_written", "positions", "verified", "core_seconds")
_MOMENT = 1_750_000_000_000
_AS_INGESTED = {names.JOB: "ingest"}


class Lake:
    """The catalog of the benchmark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        uri = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        self._catalog = {"name": _CATALOG, "properties": {"type": "sql", **uri}}

    def spec(self, job: str, **rest: Any) -> Any:
        """Return the spec of a job."""
        return parse_spec({"version": 1, "job": job, "catalog": self._catalog, **rest})

    def session(self) -> SparkSession:
        """Return a session like those of our jobs."""
        return open_session(self.spec("rewrite_delete_files", tables=[_NAME]).catalog, "bench-spill")

    def table(self) -> IcebergTable:
        """Load the table."""
        return IcebergTable(self.session(), _CATALOG, _NAME)


def fill(lake: Lake, rows: int, keys: int, version: int) -> int:
    """Make the table and return the snapshot that every job starts from."""
    feed(lake, 1, version)
    spark, table = lake.session(), lake.table()
    source = spark.range(0, rows, 1, _FILES).selectExpr(f"{_KEY} AS m", "id AS number")
    values = ["number", "md5(m) AS note", f"'0000' AS {ORDER_COLUMN}", f"now() AS {TIME_COLUMN}"]
    frame = source.selectExpr(_UUID, *values).select(*table.column_names)
    commit(table, RowChanges(rows=stage_rows(table, frame), summary=_AS_INGESTED))
    first = rows * 4 // 5
    drawn = spark.range(first, first + keys).selectExpr(f"{_KEY} AS m").selectExpr(_UUID).toArrow()["id"]
    for number, part in enumerate(np.array_split(np.arange(keys), _COMMITS)):
        layout = FileLayout.of(table, f"{table.location}/data/commit-{number}", {"id": "id"}, names=["id"])
        deletes = []
        for begin in range(int(part[0]), int(part[-1]) + 1, _KEYS_A_FILE):
            file = ArrowFile(layout)
            file.write(pa.table({"id": drawn.slice(begin, min(_KEYS_A_FILE, int(part[-1]) + 1 - begin))}))
            size, location = file.close(), file.location
            assert location is not None, "keys were written"
            deletes += describe(table, [WrittenFile(location, size)], 0, ["id"])
        commit(table, RowChanges(deletes=deletes, summary=_AS_INGESTED))
    # one event before the restored moment, and one after it
    feed(lake, 2, version)
    feed(lake, 1000, version)
    head = table.refresh().head()
    assert head is not None
    return head.id


def commit(table: IcebergTable, changes: RowChanges) -> None:
    """Commit like ingestion does."""
    carrier = carrier_of(table.refresh().ancestors())
    append_changes(table, changes, PositionFence(carrier.text if carrier else None))


def feed(lake: Lake, number: int, version: int) -> None:
    """Ingest one event."""
    (lake.folder / "events").mkdir(exist_ok=True)
    row = json.dumps({"id": f"event {number}", "number": number, "note": "x"})
    line = ENCODINGS["debezium-json"].line(number, "c", "null", row)
    (lake.folder / f"events/{number}.jsonl").write_text(line)
    source = {"type": "files", "path": f"{lake.folder}/events/*.jsonl", "format": "debezium-json"}
    target = {"table": _NAME, "key": ["id"], "history_table": _HISTORY, "format_version": version}
    (report,) = run(lake.spec("ingest", source=source, target=target), ingest).tables
    assert report.outcome == "done", report.reason


def read_plainly(lake: Lake) -> None:
    """Read all columns of all rows."""
    lake.session().table(f"{_CATALOG}.{_NAME}").write.format("noop").mode("overwrite").save()


def _maintain(job: Any, **options: Any) -> Callable[[Lake], Any]:
    def work(lake: Lake) -> Any:
        (report,) = run(lake.spec(job.__name__, tables=[_NAME], options=options), each_table(job)).tables
        assert report.outcome == "done", report.reason
        return report.metrics

    return work


def restore(lake: Lake) -> Any:
    """Restore the moment before the last event into a table."""
    moment = datetime.fromtimestamp((_MOMENT + 500) / 1000, UTC).isoformat()
    options = {"moment": moment, "history_tables": {_NAME: _HISTORY}, "into": {_NAME: "bench.past"}}
    (report,) = run(lake.spec("restore_moment", tables=[_NAME], options=options), restore_moment).tables
    assert report.outcome == "done", report.reason
    return report.metrics


_WORK: dict[str, Callable[[Lake], Any]] = {
    "iceberg": read_plainly,
    "export_changes": _maintain(export_changes, destinations={_NAME: {"table": "bench.changes"}}),
    "restore_moment": restore,
    "compact_data_files": _maintain(compact_data_files, target_file_size_bytes=2**31),
    "sort_data_files": _maintain(sort_data_files, columns=["id"]),
    "rewrite_delete_files": _maintain(rewrite_delete_files),
}


def measured(name: str, folder: Path, heap: str, patience: float) -> dict[str, Any]:
    """Run one job in a separate process and return its cost."""
    print(f"{name} …")
    submit = f"--driver-memory {heap} --conf spark.ui.enabled=false pyspark-shell"
    environment = {**os.environ, "SPARK_MASTER": "local[2]", "PYSPARK_SUBMIT_ARGS": submit}
    command = [sys.executable, "-m", "benchmarks.spill", "--only", name, "--folder", str(folder)]
    began = time.monotonic()
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        with peak_resident(process.pid) as peak:
            try:
                code: int | None = process.wait(patience)
            except subprocess.TimeoutExpired:
                code = None
                _end(process.pid)
                process.wait()
    outcome = {None: f"did not end within {patience:.0f} s", 0: "done"}.get(code, "failed")
    facts = {"outcome": outcome, "seconds": round(time.monotonic() - began, 1), "peak_mb": peak}
    last = (folder / f"{name}.log").read_text(errors="replace").splitlines()[-1:]
    if code == 0 and last and last[0].startswith("{"):
        facts |= json.loads(last[0])
    elif code:
        text = (folder / f"{name}.log").read_text(errors="replace")
        facts["why"] = next((w for w in ("OutOfMemoryError", "GC overhead limit") if w in text), f"exit code {code}")
    print(f"{name}: {facts}")
    return facts


def _end(pid: int) -> None:
    import psutil

    me = psutil.Process(pid)
    for process in (*me.children(recursive=True), me):
        process.kill()


def one(name: str, lake: Lake) -> None:
    """Run one piece of work in this process and print its figures."""
    start = json.loads((lake.folder / "start.json").read_text())
    spark = lake.session()
    spark.sql(f"CALL {_CATALOG}.system.set_current_snapshot('{_CATALOG}.{_NAME}', {start['head']})")
    began = time.monotonic()
    metrics = _WORK[name](lake) or {}
    facts = {key: metrics[key] for key in _METRICS if key in metrics}
    print(json.dumps({"seconds": round(time.monotonic() - began, 1), **facts}))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--version", type=int, default=2)
    parser.add_argument("--heap", default="1g")
    parser.add_argument("--patience", type=float, default=600)
    parser.add_argument("--jobs", default=",".join(_WORK))
    parser.add_argument("--folder", type=Path, default=Path("build/bench/spill"))
    parser.add_argument("--keep", action="store_true", help="reuse the existing table")
    parser.add_argument("--only", default="", help="for the processes that this one starts")
    given = parser.parse_args()
    if given.only:
        one(given.only, Lake(given.folder.resolve()))
        return
    folder = given.folder.resolve() if given.keep else emptied(given.folder, "warehouse")
    with only_own_lines(folder / "output.log"):
        if not given.keep:
            os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--driver-memory 3g pyspark-shell")
            lake = Lake(folder)
            head = fill(lake, given.rows, given.keys, given.version)
            (folder / "start.json").write_text(json.dumps({"head": head}))
            lake.session().stop()
            print("filled")
        results = {name: measured(name, folder, given.heap, given.patience) for name in given.jobs.split(",")}
        print(
            json.dumps({"name": "bench-spill", "rows": given.rows, "keys": given.keys, "heap": given.heap, **results})
        )


if __name__ == "__main__":
    main()
