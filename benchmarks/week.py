"""Check that governance keeps a lake healthy: a week of 30 tables, hour by hour, on a clock that is set forward.

    python -m benchmarks.week [--tables 30] [--hours 168] [--budget 0.012] [--seed 1]

Each table has a writer of one habit: streams of changes or of new rows every hour, changes by day only, loads at night,
or, for half of the tables, a change about every other day. After the writers of an hour the tasks of the hourly DAG run
in one application, under a budget that does not suffice for all work; at three those of the nightly DAG, without a
budget. Scores and debt are measured by workers after that. Jobs run without proofs: at the end an outside reader
compares each table with the rows its writer left. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.days import CATALOG, Fed, governed
from benchmarks.folders import emptied
from benchmarks.terminal import only_own_lines
from demo.compare import open_duckdb
from lakecdc.contract.spec import parse_spec
from lakecdc.runtime.session import open_session
from local_services import spark_classes

_NIGHT, _MORNING, _EVENING = 3, 8, 18
_MAX_WAIT_HOURS = 6
_MIN_SCORE = 85
_FIRST_ROWS = 2_000
# shortens jobs of a handful of rows
_SETTINGS = {
    **spark_classes.INTERPRETED,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
_UNPROVEN = {"verify": "off", "verify_off_reason": "all rows are compared at the end"}
Draw = np.random.Generator


def _changes(table: Fed, hour: int, draw: Draw) -> None:
    """Upsert old ids, newer ones more often, and a few new ones."""
    newest = max(table.rows)
    old = newest - np.minimum(draw.exponential(500, 30).astype(np.int64), newest)
    table.upsert(np.unique([*old, *range(newest + 1, newest + 11)]), f"hour {hour}")


def _new_rows(table: Fed, hour: int, draw: Draw) -> None:
    table.append(int(draw.integers(50, 200)), files=2)


def _changes_by_day(table: Fed, hour: int, draw: Draw) -> None:
    if _MORNING <= hour % 24 < _EVENING:
        _changes(table, hour, draw)


def _load_at_night(table: Fed, hour: int, _: Draw) -> None:
    if hour % 24 == _NIGHT - 1:
        table.append(5_000, files=8)


def _change_now_and_then(table: Fed, hour: int, draw: Draw) -> None:
    if draw.random() < 1 / 48:
        _changes(table, hour, draw)


#: in turn; in most lakes most tables are quiet
HABITS: tuple[Callable[[Fed, int, Draw], None], ...] = (
    *(_changes, _new_rows, _changes_by_day, _load_at_night, _load_at_night),
    *(_change_now_and_then,) * 5,
)


@dataclass
class Course:
    """The measurements from hour to hour.

    :param scores: scores of all tables.
    :param debts: delete files that a scan of all tables opens.
    :param unpaid: hours for which a table has had equality deletes, by table.
    """

    scores: list[float] = field(default_factory=list)
    debts: list[float] = field(default_factory=list)
    unpaid: Counter[str] = field(default_factory=Counter)
    longest_unpaid: int = 0
    jobs: Counter[str] = field(default_factory=Counter)
    worked_on: Counter[str] = field(default_factory=Counter)
    core_seconds: float = 0.0

    def see(self, tables: list[Fed]) -> None:
        """Measure the tables at the end of an hour."""
        healths = {table.name: table.health for table in tables}
        self.scores += [health.score for health in healths.values()]
        self.debts.append(sum(health.delete_read_cost for health in healths.values()))
        for name, health in healths.items():
            self.unpaid[name] = self.unpaid[name] + 1 if health.equality_delete_files else 0
        self.longest_unpaid = max(self.longest_unpaid, *self.unpaid.values())

    def done(self, reports: list[Any]) -> None:
        """Count the outcomes of a DAG."""
        for report in reports:
            if report.outcome == "done":
                self.jobs[report.job] += 1
                self.worked_on[report.table] += 1
            self.core_seconds += report.metrics.get("core_seconds", 0.0)

    def facts(self) -> dict[str, Any]:
        """Return the measurements as JSON."""
        scores = sorted(self.scores)
        return {
            "lowest_score": round(scores[0], 1),
            "lowest_score_of_99_in_100": round(scores[len(scores) // 100], 1),
            "median_score": round(statistics.median(scores), 1),
            "highest_debt": round(max(self.debts), 1),
            "debt_of_first_and_last_day": [round(statistics.mean(d), 1) for d in (self.debts[:24], self.debts[-24:])],
            "longest_unpaid_hours": self.longest_unpaid,
            "jobs": dict(self.jobs),
            "tables_worked_on": len(self.worked_on),
            "core_seconds": round(self.core_seconds, 1),
        }


class Week:
    """A lake, its writers and its DAGs.

    :param folder: folder of the catalog and the warehouse.
    :param budget: core-minutes per hour.
    """

    def __init__(self, folder: Path, tables: int, budget: float, seed: int) -> None:
        from airflow_provider_lakecdc.templates import hourly_governance_dag, nightly_governance_dag, parse_config

        (folder / "warehouse").mkdir()
        where = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        self._properties = {"type": "sql", **where}
        os.environ["AIRFLOW_CONN_LAKE"] = json.dumps({"conn_type": "iceberg", "extra": self._properties})
        names = [f"bench.t{number:02}" for number in range(tables)]
        catalog = {"name": CATALOG, "properties": self._properties}
        spec = parse_spec({"version": 1, "job": "compact_data_files", "catalog": catalog, "tables": names})
        spark = open_session(spec.catalog, "bench-week")
        for setting, value in _SETTINGS.items():
            spark.conf.set(setting, value)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.bench")
        self._draw = np.random.default_rng(seed)
        self._catalog = SqlCatalog(CATALOG, **where)
        self.tables = [Fed(spark, self._catalog, name) for name in names]
        for table in self.tables:
            table.append(_FIRST_ROWS, files=1)
        config = parse_config(
            {
                "catalog_conn_id": "lake",
                "tables": ["bench.*"],
                "policy": {"*": {"allow": ["*"], "max_wait": _MAX_WAIT_HOURS * 3600, "min_score": _MIN_SCORE}},
                "budgets": {"hourly_governance": budget},
                "options": {"rewrite_delete_files": _UNPROVEN, "compact_data_files": _UNPROVEN},
                "one_application": True,
            }
        )
        self._hourly, self._nightly = hourly_governance_dag(config), nightly_governance_dag(config)
        self.course = Course()

    def pass_hour(self, hour: int) -> None:
        """Write, govern, measure, and set the clock forward."""
        for number, table in enumerate(self.tables):
            HABITS[number % len(HABITS)](table, hour, self._draw)
        self.course.done(governed(self._hourly, self._properties)[1])
        if hour % 24 == _NIGHT:
            self.course.done(governed(self._nightly, self._properties)[1])
        self.course.see(self.tables)
        for table in self.tables:
            table.age()

    def compare(self) -> int:
        """Compare every table with the rows written, by DuckDB, and return the number of rows."""
        count = 0
        with open_duckdb() as connection:
            for table in self.tables:
                place = self._catalog.load_table(table.name).metadata_location.removeprefix("file://")
                rows = connection.execute("SELECT id, name FROM iceberg_scan(?)", [place]).fetchall()
                assert sorted(rows) == sorted(table.rows.items()), table.name
                count += len(rows)
        return count


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=30)
    parser.add_argument("--hours", type=int, default=168)
    parser.add_argument("--budget", type=float, default=0.012, help="minutes of cores for the hourly DAG")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/week"))
    given = parser.parse_args()
    folder = emptied(given.folder)
    os.environ |= {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__LAKECDC__AUDIT": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        # time is not reported, and all jobs are small: compiling less makes the week several times shorter
        "JDK_JAVA_OPTIONS": spark_classes.LONG_LIVED_JVM,
        **spark_classes.environment(),
    }
    with only_own_lines(folder / "output.log"):
        begun = time.monotonic()
        week = Week(folder, given.tables, given.budget, given.seed)
        for hour in range(given.hours):
            week.pass_hour(hour)
            if hour % 24 == 23:
                print(f"day {hour // 24 + 1}, {time.monotonic() - begun:.0f} s: {json.dumps(week.course.facts())}")
        setting = {"tables": given.tables, "hours": given.hours, "budget_minutes": given.budget, "seed": given.seed}
        totals = {"rows": week.compare(), "seconds": round(time.monotonic() - begun), "cores": os.cpu_count()}
        print(json.dumps({"name": "bench-week", **week.course.facts(), **totals, **setting}))


if __name__ == "__main__":
    main()
