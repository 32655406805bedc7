"""Measure keeping a table free of equality deletes at every moment, for batches and tables of several sizes.

    python -m benchmarks.resolve [--rows 10000000,50000000] [--changes 10000,100000] [--keys random,recent,sorted]

Three tables hold the same rows, in files of a million, ascending by key. Each gets the same batches of updates:
``resolved`` locates the rows to delete before its commit; ``converted`` writes equality deletes, which
``rewrite_delete_files`` converts after each batch, including its proof; ``merge`` is ``MERGE INTO`` in merge-on-read,
as Iceberg's documentation recommends. Keys are drawn from the whole table or its newest twentieth, or are consecutive.
The first batch of each kind is not counted; the figures are medians. In the end all tables must hold the same. The last
line is JSON. With ``--memory`` ours applies that many more batches alone, and the memory of all processes is reported.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import events
from benchmarks.deletes import Cost, costs, medians
from benchmarks.folders import emptied
from benchmarks.ingest import Lake
from benchmarks.ingest_growth import fill
from benchmarks.memory import resident
from benchmarks.peers import merge_into
from benchmarks.terminal import only_own_lines
from lakecdc.contract.spec import parse_spec
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.runtime.run import each_table, run

_CONTENDERS = ("resolved", "converted", "merge")


class Tables:
    """The tables of all contenders, with the same rows.

    :param version: their format version.
    """

    def __init__(self, lake: Lake, version: int) -> None:
        self._lake, self._number = lake, 0
        self._settings: dict[str, dict[str, Any]] = {
            "resolved": {"deletes": "resolved", "format_version": version},
            "converted": {"format_version": version},
        }
        spark, self._rng = lake.session(), random.Random(3)
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
        merge_into.create(spark, "lake.bench.merge", version)
        # makes ours
        self.batch(range(1000))

    def grow(self, first: int, end: int) -> None:
        """Insert rows of some keys, ascending, into each table."""
        for contender in _CONTENDERS:
            fill(self._lake, first, end, contender)

    def batch(self, keys: range | list[int], contenders: tuple[str, ...] = _CONTENDERS) -> dict[str, Cost]:
        """Update rows in the tables of some contenders and return the cost."""
        # a file named like an earlier one would count as read
        folder = Path(tempfile.mkdtemp(prefix="changes-", dir=self._lake.folder))
        self._number = events.write_updates(folder, keys, self._number)
        work: dict[str, Callable[[str], object]] = {
            "resolved": lambda files: self._lake.ingest("resolved", files, self._settings["resolved"]),
            "converted": self._converted,
            "merge": lambda files: merge_into.ingest(self._lake.session(), "lake.bench.merge", files),
        }
        cost_by_contender = {}
        for contender in contenders:
            with costs() as cost:
                work[contender](f"{folder}/*.jsonl")
            cost_by_contender[contender] = cost
        shutil.rmtree(folder)
        return cost_by_contender

    def heap(self) -> int:
        """Return the MiB of live objects in the JVM, which is driver and executor."""
        runtime = self._lake.session()._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
        runtime.gc()
        return int(runtime.totalMemory() - runtime.freeMemory()) // 2**20

    def keys(self, kind: str, rows: int, count: int) -> range | list[int]:
        """Draw the keys of a batch."""
        if kind == "sorted":
            first = self._rng.randrange(rows - count)
            return range(first, first + count)
        lowest = 0 if kind == "random" else rows - max(rows // 20, count)
        return self._rng.sample(range(lowest, rows), count)

    def check(self) -> None:
        """Check that all tables hold the same."""
        spark = self._lake.session()
        contents = [
            tuple(spark.sql(f"SELECT count(*), sum(version), sum(id) FROM lake.bench.{one}").collect()[0])
            for one in _CONTENDERS
        ]
        assert len(set(contents)) == 1, dict(zip(_CONTENDERS, contents, strict=True))

    def _converted(self, files: str) -> None:
        self._lake.ingest("converted", files, self._settings["converted"])
        job = "rewrite_delete_files"
        spec = {"version": 1, "job": job, "catalog": self._lake.catalog, "tables": ["bench.converted"]}
        report = run(parse_spec(spec), each_table(rewrite_delete_files))
        assert report.exit_code() == 0, report.tables[0].reason


def measured(tables: Tables, rows: int, changes: int, kind: str, batches: int) -> dict[str, Any]:
    """Return the median cost of a batch for each contender, and its ratio to ours."""
    costs = [tables.batch(tables.keys(kind, rows, changes)) for _ in range(batches + 1)][1:]
    results: dict[str, Any] = {"rows": rows, "changes": changes, "keys": kind}
    results |= {contender: medians([one[contender] for one in costs]) for contender in _CONTENDERS}
    for measure in ("seconds", "core_seconds"):
        ours, others = results["resolved"][measure], [results[name][measure] for name in _CONTENDERS[1:]]
        results[f"{measure}_beside"] = {
            "converted": round(ours / others[0], 2),
            "merge": round(ours / others[1], 2),
        }
    seconds = ", ".join(f"{name} {results[name]['seconds']} s" for name in _CONTENDERS)
    print(f"{rows:,} rows, {changes:,} {kind} changes: {seconds}")
    return results


def memory(tables: Tables, rows: int, batches: int) -> list[dict[str, Any]]:
    """Apply batches of 10,000 changes to our table alone and report the memory after every tenth."""
    samples = []
    for number in range(1, batches + 1):
        cost = tables.batch(tables.keys("random", rows, 10_000), ("resolved",))["resolved"]
        if number % (batches // 10) == 0:
            facts = {"batch": number, "seconds": round(cost.seconds, 2), "heap_mb": tables.heap()}
            samples.append(facts | {f"{kind}_mb": size for kind, size in resident(os.getpid()).items()})
            print(f"after {number} batches: {samples[-1]}")
    return samples


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="10000000,50000000")
    parser.add_argument("--changes", default="10000,100000")
    parser.add_argument("--keys", default="random,recent,sorted")
    parser.add_argument("--batches", type=int, default=3, help="of each kind, besides the first")
    parser.add_argument(
        "--memory", type=int, default=0, help="batches of ours alone at the end, to measure memory growth"
    )
    parser.add_argument("--version", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/resolve"))
    given = parser.parse_args()
    lake = Lake(emptied(given.folder, "warehouse"))
    with only_own_lines(lake.folder / "output.log"):
        tables, filled, cases = Tables(lake, given.version), 1000, []
        for rows in map(int, given.rows.split(",")):
            tables.grow(filled, rows)
            filled = rows
            for changes in map(int, given.changes.split(",")):
                for kind in given.keys.split(","):
                    cases.append(measured(tables, rows, changes, kind, given.batches))
            tables.check()
        grown = memory(tables, filled, given.memory) if given.memory else None
        facts = {"format_version": given.version, "cores": os.cpu_count(), "memory": grown}
        print(json.dumps({"name": "bench-resolve", "cases": cases, **facts}))


if __name__ == "__main__":
    main()
