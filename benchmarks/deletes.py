"""Measure the cost of removing equality deletes and the gain for readers: ours against Iceberg's procedures.

    python -m benchmarks.deletes [--rows 30000000] [--deletes 300000] [--commits 100] [--versions 2,3]
    python -m benchmarks.deletes --growth 10,30,100
    python -m benchmarks.deletes --bounded

A table of 8 columns loses random keys in many small commits of equality deletes, as a CDC writer leaves them. Every
contender starts from the same snapshot (the table is rolled back in between) and runs twice, after a warm-up of the
session on a small table: the first run shows the cost in a fresh application, the second without compilation.
Core-seconds are those of all processes together. A clean table is the output of ``rewrite_data_files`` that rewrites
everything.

``--growth`` deletes the same number of keys, drawn from the newest five million, from tables of as many million rows:
our cost should follow the deletes and the files they overlap.

``--bounded`` converts 20,000 delete files with 50 million keys in a driver of 4 GB and two executors of 2 GB, to prove
that it ends.

Flink's ``ConvertEqualityDeletes`` needs Iceberg 1.12, whose Flink runtime is not published yet. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.folders import emptied
from benchmarks.terminal import only_own_lines
from lakecdc.contract.spec import parse_spec
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import WrittenFile, describe, stage_rows
from lakecdc.iceberg.table import IcebergTable
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.runtime.run import each_table, run
from lakecdc.runtime.session import open_session
from lakecdc.writer.parquet import ArrowFile, FileLayout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG = "lake"
_COLUMNS = (
    "id bigint NOT NULL, name string, email string, city string, amount decimal(12,2), token string, "
    "updated_at timestamp, status string"
)
_ROWS = (
    "id, concat('customer ', id % 100000) AS name, concat('c', hash(id), '@example.org') AS email, "
    "concat('city ', hash(id, 1) % 500) AS city, cast(hash(id, 2) % 1000000 / 100 AS decimal(12,2)) AS amount, "
    "md5(cast(id AS string)) AS token, timestamp_seconds(1700000000 + id) AS updated_at, "
    "element_at(array('new', 'paid', 'sent', 'done'), cast(id % 4 AS int) + 1) AS status"
)
_HOT_KEYS = 5_000_000


@dataclass
class Cost:
    """The cost of one run.

    :param again: seconds and core-seconds of a second run.
    """

    seconds: float = 0.0
    core_seconds: float = 0.0
    again: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def medians(costs: Sequence[Cost]) -> dict[str, float]:
    """Return the medians of seconds and core-seconds."""
    measures = ("seconds", "core_seconds")
    return {name: round(statistics.median(getattr(one, name) for one in costs), 2) for name in measures}


class Deletes(NamedTuple):
    """The equality deletes of a table.

    :param rows: keys they delete.
    :param keys: range the keys are drawn from.
    :param files: delete files per commit.
    """

    rows: int
    commits: int
    keys: range
    files: int = 1


class Bench:
    """One table with equality deletes."""

    def __init__(self, folder: Path, version: int, rows: int, deletes: Deletes) -> None:
        self._folder, self._version, self._rows = folder, version, rows
        self._catalog = {
            "name": _CATALOG,
            "properties": {
                "type": "sql",
                "uri": f"sqlite:///{folder}/catalog.db",
                "warehouse": f"file://{folder}/warehouse",
            },
        }
        self._name = f"bench.v{version}_{rows}"
        # without its catalog Iceberg looks for one named like the namespace and logs that it is missing
        self._whole_name = f"{_CATALOG}.{self._name}"
        spec = parse_spec(self._spec())
        self._spark: SparkSession = open_session(spec.catalog, "bench-deletes")
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {_CATALOG}.bench")
        self._fill()
        for commit in range(deletes.commits):
            self._delete(deletes.rows // deletes.commits, commit, deletes.keys, deletes.files)
        print(f"{self._name}: {rows:,} rows, {deletes.rows:,} equality deletes in {deletes.commits} commits")
        head = self._table().head()
        assert head is not None
        self._start = head.id

    def _spec(self) -> dict[str, Any]:
        return {"version": 1, "job": "rewrite_delete_files", "catalog": self._catalog, "tables": [self._name]}

    def _table(self) -> IcebergTable:
        return IcebergTable(self._spark, _CATALOG, self._name)

    def _fill(self) -> None:
        self._spark.sql(
            f"CREATE TABLE {_CATALOG}.{self._name} ({_COLUMNS}) USING iceberg "
            f"TBLPROPERTIES ('format-version'='{self._version}', 'write.parquet.compression-codec'='zstd')"
        )
        # a million rows per file, about 60 MB, ascending, as a sort by key leaves them
        source = self._spark.range(0, self._rows, 1, max(1, self._rows // 1_000_000)).selectExpr(*_split(_ROWS))
        table = self._table()
        append_changes(table, RowChanges(rows=stage_rows(table, source)), PositionFence(None))

    def _delete(self, count: int, seed: int, keys: range, files: int) -> None:
        table, draw = self._table(), np.random.default_rng(seed)
        layout = FileLayout.of(table, f"{table.location}/data/commit-{seed}", {"id": "id"}, names=["id"])
        deletes = []
        # one Spark task per file would take longer than the measured work
        for drawn in np.array_split(draw.integers(keys.start, keys.stop, count), files):
            file = ArrowFile(layout)
            file.write(pa.table({"id": drawn}))
            size, location = file.close(), file.location
            assert location is not None, "keys were written"
            deletes += describe(table, [WrittenFile(location, size)], 0, ["id"])
        append_changes(table, RowChanges(deletes=deletes), PositionFence(None))

    def roll_back(self) -> None:
        """Roll the table back to the state with all its equality deletes."""
        self._spark.sql(f"CALL {_CATALOG}.system.set_current_snapshot('{self._whole_name}', {self._start})")

    def rows(self) -> int:
        """Count live rows."""
        row = self._spark.sql(f"SELECT count(*), sum(id) FROM {_CATALOG}.{self._name}").first()
        assert row is not None
        return hash(tuple(row))

    def ours(self) -> Cost:
        """Run the job with its defaults, including its proof."""
        with costs() as cost:
            report = run(parse_spec(self._spec()), each_table(rewrite_delete_files))
        table = report.tables[0]
        assert table.outcome == "done" and table.metrics["equality_delete_files_after"] == 0, table.reason
        names = ("positions", "data_files_touched", "verified", "seconds", "commits")
        cost.facts = {name: table.metrics[name] for name in names}
        return cost

    def procedure(self, name: str) -> Cost:
        """Run one of Iceberg's procedures on all files."""
        call = f"{name}(table => '{self._whole_name}', options => map('rewrite-all', 'true'))"
        with costs() as cost:
            row = self._spark.sql(f"CALL {_CATALOG}.system.{call}").first()
        cost.facts = row.asDict() if row is not None else {}
        return cost

    def twice(self, name: str, work: Callable[[str], Cost]) -> Cost:
        """Run a contender twice from the same state.

        :param name: name of the contender.
        """
        first = work(name)
        self.roll_back()
        second = work(name)
        print(f"{self._name}: {name}: {first.seconds} s, again {second.seconds} s")
        return replace(first, again={"seconds": second.seconds, "core_seconds": second.core_seconds})

    def readers(self) -> dict[str, float]:
        """Return the seconds of a full scan of all columns and of a query for one key."""
        scan = self._spark.table(f"{_CATALOG}.{self._name}")
        point = f"SELECT * FROM {_CATALOG}.{self._name} WHERE id = {self._rows - 12_345}"
        return {
            "full_scan": _best(lambda: scan.write.format("noop").mode("overwrite").save()),
            "point_query": _best(lambda: self._spark.sql(point).collect()),
        }


def _split(columns: str) -> list[str]:
    """Split a select list at its commas outside parentheses."""
    items, depth = [""], 0
    for letter in columns:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            items.append("")
        else:
            items[-1] += letter
    return [item.strip() for item in items]


def _best(work: Callable[[], object], times: int = 2) -> float:
    seconds = []
    for _ in range(times):
        began = time.monotonic()
        work()
        seconds.append(time.monotonic() - began)
    return round(min(seconds), 3)


@contextmanager
def costs() -> Iterator[Cost]:
    """Time the ``with`` block and count the CPU time of this process and its descendants."""
    cost, began, before = Cost(), time.monotonic(), _processor_seconds()
    yield cost
    cost.seconds = round(time.monotonic() - began, 2)
    # a Python worker that is idle for a minute ends, and its seconds are lost
    used = sum(seconds - before.get(pid, 0.0) for pid, seconds in _processor_seconds().items())
    cost.core_seconds = round(used, 1)


def _processor_seconds() -> dict[int, float]:
    """Return the CPU seconds of this process and its descendants."""
    import psutil

    me = psutil.Process()
    # a parent's figures include those of its ended children
    return {p.pid: sum(p.cpu_times()[:4]) for p in (me, *me.children(recursive=True))}


def against_procedures(folder: Path, version: int, rows: int, deletes: int, commits: int) -> dict[str, Any]:
    """Compare ours and Iceberg's procedures on one table."""
    bench = Bench(folder, version, rows, Deletes(deletes, commits, range(rows)))
    expected, timings = bench.rows(), {"before": bench.readers()}
    ours = bench.twice("ours", lambda _: bench.ours())
    assert bench.rows() == expected
    timings["after_ours"] = bench.readers()
    bench.roll_back()
    positions = bench.twice("rewrite_position_delete_files", bench.procedure)
    bench.roll_back()
    everything = bench.twice("rewrite_data_files", bench.procedure)
    assert bench.rows() == expected
    timings["clean"] = bench.readers()
    return {
        "ours": vars(ours),
        "rewrite_data_files": vars(everything),
        "rewrite_position_delete_files": vars(positions),
        "readers": timings,
        "cheaper_than_rewriting": {
            "seconds": round(everything.seconds / ours.seconds, 1),
            "core_seconds": round(everything.core_seconds / ours.core_seconds, 1),
            "again": {name: round(everything.again[name] / ours.again[name], 1) for name in ours.again},
        },
        "scan_after_to_clean": round(timings["after_ours"]["full_scan"] / timings["clean"]["full_scan"], 2),
    }


def growth(folder: Path, sizes: list[int], deletes: int, commits: int) -> dict[str, Any]:
    """Run ours on tables of several sizes, in million rows."""
    results = {}
    for size in sizes:
        rows = size * 1_000_000
        bench = Bench(folder, 3, rows, Deletes(deletes, commits, range(max(0, rows - _HOT_KEYS), rows)))
        results[f"{size} M rows"] = vars(bench.ours())
    return results


def bounded(folder: Path) -> dict[str, Any]:
    """Convert more deletes than fit into the memory of all processes together."""
    bench = Bench(folder, 3, 20_000_000, Deletes(50_000_000, 20, range(60_000_000), files=1000))
    return {"delete_files": 20_000, "deletes": 50_000_000, "rows": 20_000_000, "ours": vars(bench.ours())}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=30_000_000)
    parser.add_argument("--deletes", type=int, default=300_000)
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument("--versions", default="2,3")
    parser.add_argument("--growth", default="")
    parser.add_argument("--folder", type=Path, default=Path("build/bench/deletes"))
    parser.add_argument("--bounded", action="store_true")
    given = parser.parse_args()
    if given.bounded:
        os.environ["SPARK_MASTER"] = "local-cluster[2,1,2048]"
        os.environ["PYSPARK_SUBMIT_ARGS"] = "--driver-memory 4g --executor-memory 2g pyspark-shell"
    folder = emptied(given.folder, "warehouse")
    with only_own_lines(folder / "output.log"):
        print(json.dumps({**measured(given, folder), "commits": given.commits, "cores": os.cpu_count()}))


def measured(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the JSON of the last line.

    :param given: the arguments.
    """
    Bench(folder, 3, 1000, Deletes(100, 1, range(1000))).ours()
    if given.bounded:
        return {"name": "bench-deletes-bounded", **bounded(folder)}
    result: dict[str, Any] = {"name": "bench-deletes", "rows": given.rows, "deletes": given.deletes}
    if given.growth:
        sizes = [int(size) for size in given.growth.split(",")]
        return {**result, "growth": growth(folder, sizes, given.deletes, given.commits)}
    for version in given.versions.split(","):
        result[f"v{version}"] = against_procedures(folder, int(version), given.rows, given.deletes, given.commits)
    return result


if __name__ == "__main__":
    main()
