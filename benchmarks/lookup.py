"""Count the files a key look-up opens before and after the night, and after Iceberg's bin-packing of the same table.

    python -m benchmarks.lookup [--rows 4000000] [--commits 100] [--keys 1000] [--timed 50]

A table is loaded in random order, so that each of its files holds keys from everywhere. The jobs of the nightly DAG
(sort, compact, manifests) and Iceberg's ``rewrite_data_files`` start from the same snapshot, with the same target size.
Files are counted key by key with pyiceberg's planning, an outside reader; seconds are the median of single queries in
Spark. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.deletes import costs
from benchmarks.folders import emptied
from benchmarks.terminal import only_own_lines
from lakecdc.contract.spec import parse_spec
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.manifests import rewrite_manifests
from lakecdc.maintain.sort import sort_data_files
from lakecdc.runtime.run import TableWork, each_table, run
from lakecdc.runtime.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG, _NAME = "lake", "bench.orders"
_ROWS = (
    "id",
    "concat('customer ', id % 100000) AS customer",
    "md5(cast(id AS string)) AS token",
    "cast(hash(id, 2) % 1000000 / 100 AS decimal(12,2)) AS amount",
    "timestamp_seconds(1700000000 + id) AS updated_at",
)
_NIGHT: tuple[tuple[str, TableWork, dict[str, Any]], ...] = (
    ("sort_data_files", sort_data_files, {"columns": ["id"]}),
    ("compact_data_files", compact_data_files, {}),
    ("rewrite_manifests", rewrite_manifests, {}),
)
_TARGET = "write.target-file-size-bytes"


class Bench:
    """One table in random order.

    :param folder: folder of the catalog and the warehouse.
    :param commits: number of commits, of one data file each.
    """

    def __init__(self, folder: Path, rows: int, commits: int, target: int) -> None:
        self._properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        spec = parse_spec(self._spec("rewrite_manifests", {}))
        self._spark: SparkSession = open_session(spec.catalog, "bench-lookup")
        self._table = f"{_CATALOG}.{_NAME}"
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {_CATALOG}.bench")
        self._spark.sql(
            f"CREATE TABLE {self._table} (id bigint NOT NULL, customer string, token string, amount decimal(12,2), "
            f"updated_at timestamp) USING iceberg TBLPROPERTIES ('{_TARGET}'='{target}')"
        )
        keys = self._spark.range(0, rows, 1, 2).selectExpr("id", f"pmod(hash(id), {commits}) AS commit").cache()
        for commit in range(commits):
            some = keys.where(f"commit = {commit}").coalesce(1).selectExpr(*_ROWS)
            some.writeTo(self._table).append()
        keys.unpersist()
        self._start = self._head()
        print(f"{rows:,} rows in {commits} files, in random order")

    def _spec(self, job: str, options: dict[str, Any]) -> dict[str, Any]:
        catalog = {"name": _CATALOG, "properties": self._properties}
        return {"version": 1, "job": job, "catalog": catalog, "tables": [_NAME], "options": options}

    def _head(self) -> int:
        row = self._spark.sql(f"SELECT snapshot_id FROM {self._table}.refs WHERE name = 'main'").first()
        assert row is not None
        return int(row.snapshot_id)

    def roll_back(self) -> None:
        """Roll the table back to its state after loading."""
        self._spark.sql(f"CALL {_CATALOG}.system.set_current_snapshot('{self._table}', {self._start})")

    def night(self) -> dict[str, Any]:
        """Run the jobs of the nightly DAG, including their proofs."""
        with costs() as cost:
            for name, job, options in _NIGHT:
                report = run(parse_spec(self._spec(name, options)), each_table(job)).tables[0]
                assert report.outcome in ("done", "nothing"), report.reason
        return {"seconds": cost.seconds, "core_seconds": cost.core_seconds}

    def bin_pack(self) -> dict[str, Any]:
        """Run Iceberg's ``rewrite_data_files`` with its default strategy on all files."""
        with costs() as cost:
            call = f"rewrite_data_files(table => '{self._table}', options => map('rewrite-all', 'true'))"
            self._spark.sql(f"CALL {_CATALOG}.system.{call}").collect()
        return {"seconds": cost.seconds, "core_seconds": cost.core_seconds}

    def look_up(self, keys: list[int], timed: int) -> dict[str, float]:
        """Return the files that look-ups open, and the seconds they take.

        :param timed: number of keys that are queried for the time.
        """
        from pyiceberg.catalog import load_catalog

        table = load_catalog(_CATALOG, **self._properties).load_table(_NAME)
        opened = [len(list(table.scan(row_filter=f"id = {key}").plan_files())) for key in keys]
        seconds = []
        for key in keys[:timed]:
            began = time.monotonic()
            rows = self._spark.sql(f"SELECT * FROM {self._table} WHERE id = {key}").collect()
            seconds.append(time.monotonic() - began)
            assert [row.id for row in rows] == [key]
        files = len(list(table.scan().plan_files()))
        figures = {"data_files": files, "opened": statistics.mean(opened), "seconds": statistics.median(seconds)}
        return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--commits", type=int, default=100, help="data files before")
    parser.add_argument("--target", type=int, default=8 * 1024**2, help="bytes per file aimed at")
    parser.add_argument("--keys", type=int, default=1000, help="look-ups whose files are counted")
    parser.add_argument("--timed", type=int, default=50, help="how many of them are queried for the time")
    parser.add_argument("--folder", type=Path, default=Path("build/bench/lookup"))
    arguments = parser.parse_args()
    folder = emptied(arguments.folder, "warehouse")
    with only_own_lines(folder / "output.log"):
        bench = Bench(folder, arguments.rows, arguments.commits, arguments.target)
        drawn = np.random.default_rng(0).choice(arguments.rows, arguments.keys, replace=False)
        keys = [int(key) for key in drawn]
        results: dict[str, Any] = {"before": bench.look_up(keys, arguments.timed)}
        for name, work in (("bin_pack", bench.bin_pack), ("night", bench.night)):
            bench.roll_back()
            results[name] = work() | {"after": bench.look_up(keys, arguments.timed)}
            print(f"{name}: {results[name]['after']['opened']} files a look-up")
        before = results["before"]["opened"]
        fewer = {name: round(before / results[name]["after"]["opened"], 1) for name in ("bin_pack", "night")}
        facts = {"rows": arguments.rows, "keys": arguments.keys, "cores": os.cpu_count()}
        print(json.dumps({"name": "bench-lookup", **results, "times_fewer_files": fewer, **facts}))


if __name__ == "__main__":
    main()
