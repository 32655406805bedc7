"""Measure comparing a table with its Postgres source: ours, and a full outer join by Spark.

    python -m benchmarks.reconcile [--rows 10000000] [--without-peer]

``ingest`` loads a table of 8 columns, which is compared twice: unchanged, and after a thousand consecutive rows of it
changed. The peer reads Postgres by JDBC, in ranges of the key, and joins that with the lake's table by key, like a
hand-written comparison; it only counts differences. The floor is the source alone: parallel COPYs of its rows,
discarded. A small table warms both ways up. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks import full_load
from benchmarks.folders import emptied
from benchmarks.terminal import only_own_lines
from lakecdc.contract.runtime import packages
from lakecdc.contract.spec import parse_spec
from lakecdc.reconcile.job import reconcile
from lakecdc.runtime.run import run
from lakecdc.runtime.session import open_session
from local_services.paths import reachable_folder
from local_services.postgres import Postgres

_WARM, _PLANTED = 10_000, 1000
_ROWS_A_PART = 1_000_000


@dataclass(frozen=True)
class Pair:
    """A Postgres table and its target.

    :param rows: rows of each.
    """

    folder: Path
    server: Postgres
    table: str
    rows: int

    @property
    def spark(self) -> SparkSession:
        """Return the session of both ways."""
        catalog = parse_spec(self._spec()).catalog
        return open_session(catalog, "bench-reconcile", packages({"type": "sql", "uri": self.server.uri}))

    def load(self) -> None:
        """Fill the source and ingest it."""
        full_load.fill(self.server.dsn, self.table, self.rows)
        full_load.ours(self.folder, self.server.dsn, self.table, self.rows)

    def spoil(self) -> None:
        """Change rows of the lake's table."""
        first = self.rows // 2
        where = f"id > {first} AND id <= {first + _PLANTED}"
        self.spark.sql(f"UPDATE lake.bench.{self.table} SET status = 'spoilt' WHERE {where}")

    def ours(self) -> int:
        """Return the number of differing rows reported by ``reconcile``."""
        (report,) = run(parse_spec(self._spec()), reconcile).tables
        assert report.metrics.get("rows_source") == self.rows, report.reason
        # no job feeds the table meanwhile, so it is unknown whether changes are in flight
        return int(report.metrics["undecided"])

    def joined(self) -> int:
        """Return the number of differing rows by a full outer join."""
        here, there = self.spark.table(f"lake.bench.{self.table}").alias("here"), self._by_jdbc().alias("there")
        same = " AND ".join(f"here.{column} <=> there.{column}" for column in there.columns)
        return here.join(there, "id", "full").where(f"NOT ({same})").count()

    def _by_jdbc(self) -> DataFrame:
        url = f"jdbc:postgresql://127.0.0.1:{self.server.port}/postgres"
        options = {"url": url, "driver": "org.postgresql.Driver", "user": "postgres", "fetchsize": "10000"}
        bounds = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(self.rows)}
        parts = str(max(os.cpu_count() or 1, self.rows // _ROWS_A_PART))
        read = self.spark.read.format("jdbc").options(**options, **bounds, numPartitions=parts, dbtable=self.table)
        return read.option("preferTimestampNTZ", "true").load()

    def _spec(self) -> dict[str, Any]:
        spec = full_load.spec(self.folder, self.server.dsn, self.table)
        return {**spec, "job": "reconcile", "options": {"max_wait": 0}}


def _seconds(way: Callable[[Pair], int], pair: Pair, expected: int) -> float:
    began = time.monotonic()
    assert way(pair) == expected
    return round(time.monotonic() - began, 1)


def measure(folder: Path, rows: int, peer: bool) -> dict[str, float]:
    """Return the seconds of each way, for equal tables and for tables with some differing rows.

    :param peer: also measure the join.
    """
    seconds: dict[str, float] = {}
    ways = {"ours": Pair.ours, "joined": Pair.joined} if peer else {"ours": Pair.ours}
    with Postgres(reachable_folder(folder / "postgres", "lakecdc-bench-") / "data") as server:
        warm, pair = (Pair(folder, server, *each) for each in (("warm", _WARM), ("orders", rows)))
        # before the first job opens a session without the peer's driver
        assert warm.spark
        for each in (warm, pair):
            each.load()
        print(f"{rows:,} rows are in Postgres and in the lake")
        seconds["floor"] = round(full_load.ceiling(server.dsn, "orders"), 1)
        for name, expected in (("agree", 0), ("differ", _PLANTED)):
            if expected:
                warm.spoil()
                pair.spoil()
            for label, way in ways.items():
                assert way(warm) == expected
                seconds[f"{name}_{label}"] = _seconds(way, pair, expected)
                print(f"{name}, {label}: {seconds[f'{name}_{label}']} s")
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--without-peer", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("build/bench/reconcile"))
    given = parser.parse_args()
    folder = emptied(given.folder, "warehouse")
    with only_own_lines(folder / "output.log"):
        results = measure(folder, given.rows, not given.without_peer)
        facts = {"unit": "s", "rows": given.rows, "cores": os.cpu_count()}
        print(json.dumps({"name": "bench-reconcile", **results, **facts}))


if __name__ == "__main__":
    main()
