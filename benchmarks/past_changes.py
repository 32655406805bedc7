"""Measure an export of a table's changes against a full comparison of its two snapshots.

A table in files by key has a share of its rows updated by ``UPDATE``, merge-on-read: rows next to each other, as where
new orders change, or rows everywhere, so that each file has some. ``export_changes`` appends the changes to a table.
The comparison joins all rows of both snapshots by key; its result is counted and discarded. Summing signed rows instead
takes about twice as long.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.deletes import costs
from lakecdc.contract.spec import parse_spec
from lakecdc.export.job import export_changes
from lakecdc.iceberg.core_time import CoreTime
from lakecdc.runtime.run import each_table, run
from lakecdc.runtime.session import open_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_CATALOG = "lake"
_FILES = 16
_ROWS = (
    "id",
    "concat('customer ', id % 100000) AS customer",
    "md5(cast(id AS string)) AS token",
    "cast(hash(id, 2) % 1000000 / 100 AS decimal(12,2)) AS amount",
    "timestamp_seconds(1700000000 + id) AS updated_at",
)
_COLUMNS = ("id", "customer", "token", "amount", "updated_at")


class Bench:
    """One table of one format version, updated once.

    :param where: condition of the rows that change.
    """

    def __init__(self, folder: Path, version: int, rows: int, where: str, name: str) -> None:
        uri = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        self._catalog = {"name": _CATALOG, "properties": {"type": "sql", **uri}}
        self._name = f"bench.{name}"
        spec = parse_spec(self._spec())
        self.spark: SparkSession = open_session(spec.catalog, "bench-past")
        self._table = f"{_CATALOG}.{self._name}"
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {_CATALOG}.bench")
        self.spark.sql(
            f"CREATE TABLE {self._table} (id bigint NOT NULL, customer string, token string, amount decimal(12,2), "
            f"updated_at timestamp) USING iceberg TBLPROPERTIES ('format-version'='{version}', "
            "'write.update.mode'='merge-on-read', 'write.distribution-mode'='none')"
        )
        self.spark.sql(f"ALTER TABLE {self._table} SET IDENTIFIER FIELDS id")
        self.spark.range(0, rows, 1, _FILES).selectExpr(*_ROWS).writeTo(self._table).append()
        self.first = self._head()
        self.spark.sql(f"UPDATE {self._table} SET amount = amount + 1, updated_at = now() WHERE {where}")
        self.last = self._head()

    def _spec(self, **options: Any) -> dict[str, Any]:
        tables = [self._name]
        return {"version": 1, "job": "export_changes", "catalog": self._catalog, "tables": tables, "options": options}

    def _head(self) -> int:
        row = self.spark.sql(f"SELECT snapshot_id FROM {self._table}.refs WHERE name = 'main'").first()
        assert row is not None
        return int(row.snapshot_id)

    def export(self, number: int) -> int:
        """Return the number of changed rows of an export to a new table."""
        destination = {self._name: {"table": f"{self._name}_changes{number}"}}
        spec = parse_spec(self._spec(destinations=destination, since=str(self.first)))
        (report,) = run(spec, each_table(export_changes)).tables
        assert report.outcome == "done", report.reason
        return int(report.metrics["rows"])

    def _at(self, snapshot: int) -> DataFrame:
        return self.spark.sql(f"SELECT * FROM {self._table} VERSION AS OF {snapshot}")

    def joined(self, _: int) -> int:
        """Return the number of changed rows by a full outer join of both snapshots on the key."""
        old, new = self._at(self.first).alias("old"), self._at(self.last).alias("new")
        same = " AND ".join(f"old.{column} <=> new.{column}" for column in _COLUMNS)
        return 2 * old.join(new, "id", "full").where(f"NOT ({same})").count()


def measure(folder: Path, rows: int, changed: float) -> dict[str, Any]:
    """Return the cost of each way, by format version and by where the changed rows are.

    :param folder: folder of the catalog and the warehouse.
    :param changed: share of the rows.
    """
    results: dict[str, Any] = {}
    count = int(rows * changed)
    for version in (2, 3):
        for lie, where in (("together", f"id >= {rows - count}"), ("everywhere", f"id % {round(1 / changed)} = 7")):
            name = f"v{version}_{lie}"
            bench = Bench(folder, version, rows, where, name)
            ours, peer = (_median(bench.spark, work, 2 * count) for work in (bench.export, bench.joined))
            ratio = {what: round(peer[what] / ours[what], 1) for what in ours}
            results[name] = {"ours": ours, "full_comparison": peer, "ratio": ratio}
            print(f"{name}: {results[name]}")
    return results


def _median(spark: SparkSession, work: Callable[[int], int], expected: int) -> dict[str, float]:
    """Return the median cost after a warm-up: seconds, CPU seconds of its tasks, and those of all processes."""
    assert work(0) == expected
    run_costs = []
    for number in range(1, 4):
        tasks = CoreTime(spark)
        with costs() as cost:
            assert work(number) == expected
        run_costs.append((cost.seconds, tasks.seconds(), cost.core_seconds))
    names = ("seconds", "task_seconds", "core_seconds")
    return {
        name: round(statistics.median(each), 2) for name, each in zip(names, zip(*run_costs, strict=True), strict=True)
    }
