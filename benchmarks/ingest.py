"""How many Debezium events a second become rows of an upserted table: ours, and ``MERGE INTO`` in the same Spark.

    python -m benchmarks.ingest [--events 2000000] [--keys 500000] [--batches 2]

Every contender takes the same batches into a table of its own; the first batch fills it, the later ones change it. All
end in the state that DuckDB finds in the events. The last line is JSON; rates are events a second of all batches after
the first, which also warms up the JVM.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import events
from benchmarks.peers import merge_into
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.run import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG = "lake"


class Bench:
    """One run.

    :param folder: takes events, catalog and tables; emptied first.
    :param count: events in all batches together.
    """

    def __init__(self, folder: Path, count: int, keys: int, batches: int) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "warehouse").mkdir(parents=True)
        self.folder, self.batches = folder, batches
        size = count // batches
        self.parts = [events.write(folder / f"events-{i}", size, keys, first=i * size) for i in range(batches)]
        self.expected = events.final_state(f"{folder}/events-*/*.jsonl")

    @property
    def catalog(self) -> dict[str, Any]:
        """The catalog of a job spec."""
        warehouse = f"file://{self.folder}/warehouse"
        return {
            "name": _CATALOG,
            "properties": {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": warehouse},
        }

    def ours(self, engine: str) -> list[float]:
        """Seconds of each batch with one of our engines."""
        target = {"table": f"bench.{engine}", "key": ["id"], "columns": events.COLUMNS, "source_table": "orders"}
        target["partition_by"] = ["bucket(4, id)"]

        def batch(files: str) -> None:
            source = {"type": "files", "path": files, "format": "debezium-json"}
            spec = {"version": 1, "job": "ingest", "catalog": self.catalog, "source": source, "target": target}
            report = run(parse_spec({**spec, "options": {"decode_engine": engine}}), ingest)
            assert report.exit_code() == 0, report.tables[0].reason if report.tables else report.error
            done = str(report.tables[0].metrics["decoded_by"])
            assert engine == "jvm" or done == "native", done

        return self._timed(batch, f"bench.{engine}")

    def merge(self) -> list[float]:
        """Seconds of each batch with ``MERGE INTO``."""
        spark, table = self.spark(), f"{_CATALOG}.bench.merge_into"
        merge_into.create(spark, table)
        return self._timed(lambda files: merge_into.ingest(spark, table, files), "bench.merge_into")

    def spark(self) -> SparkSession:
        """The session that all share."""
        from pyspark.sql import SparkSession

        found = SparkSession.getActiveSession()
        assert found is not None
        return found

    def _timed(self, batch: Callable[[str], None], table: str) -> list[float]:
        seconds = []
        for part in self.parts:
            began = time.monotonic()
            batch(part.files)
            seconds.append(round(time.monotonic() - began, 2))
        row = self.spark().sql(f"SELECT count(*), sum(version) FROM {_CATALOG}.{table}").first()
        assert row is not None and (row[0], row[1]) == self.expected, (table, row, self.expected)
        return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/ingest"))
    arguments = parser.parse_args()
    bench = Bench(arguments.folder.resolve(), arguments.events, arguments.keys, arguments.batches)
    per_batch = arguments.events // arguments.batches
    seconds = {"native": bench.ours("auto"), "jvm": bench.ours("jvm"), "merge_into": bench.merge()}
    rates = {name: round(per_batch / statistics.median(all_[1:] or all_)) for name, all_ in seconds.items()}
    print(
        json.dumps(
            {
                "name": "bench-ingest",
                "ours": {"native": rates["native"], "jvm": rates["jvm"]},
                "peers": {"merge_into": rates["merge_into"]},
                "ratio": {name: round(rates[name] / rates["merge_into"], 2) for name in ("native", "jvm")},
                "unit": "events/s",
                "seconds": seconds,
                "events": arguments.events,
                "cores": os.cpu_count(),
            }
        )
    )


if __name__ == "__main__":
    main()
