"""Measure how many change events per second are upserted: ours, ``MERGE INTO`` in the same Spark, Flink.

    python -m benchmarks.ingest [--events 2000000] [--keys 500000] [--contenders lakecdc,merge_into,flink]
        [--format debezium-json] [--moved 0.01] [--partition-by 'truncate(100000, id)']

Two sets of events: the first fills a table (``cold``: the first work of the contender's process after its session or
mini cluster is up), the second changes it (``warm``). Every contender has its own process and table, with the same
columns, key and four buckets, and applies a set as one job, from the listing of its files to the last commit; ours
includes positions, remembered deletes and report. All must end in the state that DuckDB computes from the events. The
last line is JSON; rates are events per second, ``ours`` and ``peers`` those of the warm set. Core-seconds are of all
processes together: they hardly change on a busy machine. Formats other than Debezium's have no peers here. ``--moved``
makes a share of the second set's events key updates, each of which is two events.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from benchmarks import events
from benchmarks.deletes import costs
from benchmarks.encodings import ENCODINGS
from benchmarks.folders import emptied
from benchmarks.peers import flink, merge_into
from benchmarks.terminal import only_own_lines
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from lakecdc.runtime.session import open_session
from local_services import install
from local_services.flink import FLINK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG = "lake"
_OURS = "lakecdc"
_PEERS = ("merge_into", "flink")
#: seconds and core-seconds of each set
Timings = list[list[float]]


class Lake:
    """The events, catalog and tables of all contenders.

    :param folder: folder of events, catalog and tables.
    :param format_name: format of the events.
    :param partition_by: transform of our table.
    """

    def __init__(self, folder: Path, format_name: str = "debezium-json", partition_by: str = "bucket(4, id)") -> None:
        self.folder, self.format_name, self.partition_by = folder, format_name, partition_by
        self.database, self.warehouse = folder / "catalog.db", f"file://{folder}/warehouse"

    @property
    def sets(self) -> list[Path]:
        """Return the folders of events."""
        return sorted(self.folder.glob("events-*"))

    @property
    def catalog(self) -> dict[str, Any]:
        """Return the catalog of a job spec."""
        uri = f"sqlite:///{self.database}"
        return {"name": _CATALOG, "properties": {"type": "sql", "uri": uri, "warehouse": self.warehouse}}

    def session(self) -> SparkSession:
        """Return a session like those of our jobs."""
        nothing = {
            "version": 1,
            "job": "ingest",
            "catalog": self.catalog,
            "source": _source("x", self.format_name),
            "target": _target("x.x", self.partition_by),
        }
        return open_session(parse_spec(nothing).catalog, "benchmark")

    def ours(self, contender: str) -> Timings:
        """Return the timings of ours."""
        self.session()
        return self._timed(lambda files: self.ingest(contender, files))

    def ingest(self, contender: str, files: str, settings: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Run one ingest job into our table, with additional target settings."""
        target = {**_target(f"bench.{contender}", self.partition_by), **settings}
        spec = {
            "version": 1,
            "job": "ingest",
            "catalog": self.catalog,
            "source": _source(files, self.format_name),
            "target": target,
        }
        report = run(parse_spec(spec), ingest)
        assert report.exit_code() == 0, report.tables[0].reason if report.tables else report.error
        passes = str(report.tables[0].metrics["decoding"])
        assert passes.startswith("one pass"), passes

    def merge_into(self) -> Timings:
        """Return the timings of ``MERGE INTO``."""
        spark, table = self.session(), f"{_CATALOG}.bench.merge_into"
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {_CATALOG}.bench")
        merge_into.create(spark, table)
        return self._timed(lambda files: merge_into.ingest(spark, table, files))

    def flink(self) -> Timings:
        """Return the timings of Flink."""
        return flink.ingest(self.database, self.warehouse, "bench.flink", self.sets)

    def check(self, contenders: Sequence[str]) -> None:
        """Check that all tables match the events."""
        spark, expected = self.session(), events.final_state(f"{self.folder}/events-*/*.jsonl", self.format_name)
        for contender in contenders:
            row = spark.sql(f"SELECT count(*), sum(version) FROM {_CATALOG}.bench.{contender}").first()
            assert row is not None and (row[0], row[1]) == expected, (contender, row, expected)

    def _timed(self, ingest_files: Callable[[str], None]) -> Timings:
        timings = []
        for folder in self.sets:
            with costs() as cost:
                ingest_files(f"{folder}/*.jsonl")
            timings.append([cost.seconds, cost.core_seconds])
        return timings


def _source(files: str, format_name: str) -> dict[str, Any]:
    return {"type": "files", "path": files, "format": format_name, **ENCODINGS[format_name].settings}


def _target(table: str, partition_by: str) -> dict[str, Any]:
    target: dict[str, Any] = {"table": table, "key": ["id"], "columns": events.COLUMNS, "source_table": "orders"}
    return {**target, "partition_by": [partition_by]}


def _race(lake: Lake, contender: str) -> Timings:
    """Run one contender in a separate process."""
    command = [sys.executable, "-m", "benchmarks.ingest", "--folder", str(lake.folder), "--only", contender]
    command += ["--format", lake.format_name, "--partition-by", lake.partition_by]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    timings: Timings = json.loads(output.splitlines()[-1])
    print(f"{contender}: {' and '.join(f'{seconds} s' for seconds, _ in timings)}")
    return timings


def _run_alone(lake: Lake, contender: str) -> Timings:
    return lake.ours(contender) if contender == _OURS else list(getattr(lake, contender)())


def _result(timings: dict[str, Timings], count: int, size: int, format_name: str) -> dict[str, Any]:
    rates = {name: {"cold": round(count / s[0][0]), "warm": round(count / s[1][0])} for name, s in timings.items()}
    warm = {name: rate["warm"] for name, rate in rates.items()}
    peers = {name: warm[name] for name in _PEERS if name in warm}
    ours = {_OURS: warm[_OURS]} if _OURS in warm else {}
    ratio = {f"{mine}/{peer}": round(ours[mine] / peers[peer], 2) for mine in ours for peer in peers}
    facts = {"unit": "events/s", "format": format_name, "events": count, "bytes": size, "cores": os.cpu_count()}
    return {
        "name": "bench-ingest",
        "ours": ours,
        "peers": peers,
        "ratio": ratio,
        **facts,
        "rates": rates,
        "seconds": {name: [one[0] for one in sets] for name, sets in timings.items()},
        "core_seconds": {name: [one[1] for one in sets] for name, sets in timings.items()},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000, help="of each set")
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--format", default="debezium-json", choices=ENCODINGS)
    parser.add_argument("--moved", type=float, default=0.0, help="share of the second set's events that move a key")
    parser.add_argument("--partition-by", default="bucket(4, id)", help="transform of our table")
    parser.add_argument("--contenders", help="default: all that read the format")
    parser.add_argument("--folder", type=Path, default=Path("build/bench/ingest"))
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    lake = Lake(arguments.folder.resolve(), arguments.format, arguments.partition_by)
    able = (_OURS, *(_PEERS if arguments.format == "debezium-json" else ()))
    contenders = arguments.contenders.split(",") if arguments.contenders else list(able)
    if not {*contenders} <= {*able}:
        parser.error(f"{arguments.format} is read by {', '.join(able)}")
    if not arguments.only:
        emptied(lake.folder, "warehouse")
    with only_own_lines(lake.folder / "output.log"):
        if arguments.only:
            print(json.dumps(_run_alone(lake, arguments.only)))
            return
        if "flink" in contenders:
            install.install_tool(FLINK)
        writer = events.Writer(arguments.keys, arguments.format)
        writer.write(lake.folder / "events-0", arguments.events)
        writer.moved = arguments.moved
        size = writer.write(lake.folder / "events-1", arguments.events).bytes
        print(f"two sets of {arguments.events:,} events are written")
        timings = {contender: _race(lake, contender) for contender in contenders}
        lake.check(contenders)
        result = _result(timings, arguments.events, size, arguments.format)
        print(json.dumps({**result, "moved": arguments.moved, "partition_by": arguments.partition_by}))


if __name__ == "__main__":
    main()
