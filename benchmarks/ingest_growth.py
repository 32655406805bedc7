"""Measure the cost of a batch as its table grows: upserts never read the target, so it should stay constant.

    python -m benchmarks.ingest_growth [--rows 1000000,10000000,50000000] [--events 100000] [--batches 5]

Plain Spark inserts fill one table up to each size; then batches of events over all of its keys are ingested, in order.
The first batch of each size is not counted. The last line is JSON: median seconds and core-seconds of a batch at each
size, and by what share the last size costs more than the first.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path

from benchmarks import events
from benchmarks.deletes import Cost, costs
from benchmarks.folders import emptied
from benchmarks.ingest import Lake
from benchmarks.terminal import only_own_lines
from lakecdc.contract.target import ORDER_COLUMN, TIME_COLUMN

_TABLE = "lakecdc"
_ROWS = (
    "id, concat('customer ', id % 5000) AS customer, concat('user', id, '@example.com') AS email, 'new' AS status, "
    "CAST(id % 100000 AS decimal(12,2)) AS amount, -1L AS version, TIMESTAMP_NTZ '2025-01-01 00:00:00' AS updated_at, "
    f"md5(CAST(id AS string)) AS note, '0000' AS {ORDER_COLUMN}, TIMESTAMP '2025-01-01 00:00:00Z' AS {TIME_COLUMN}"
)


def fill(lake: Lake, first: int, end: int, table: str = _TABLE) -> None:
    """Insert rows like a full load, older than every event; additional columns of the table are null.

    :param first: first key.
    :param end: end of the keys, exclusive.
    """
    spark = lake.session()
    spark.range(first, end).createOrReplaceTempView("filling")
    columns = spark.table(f"lake.bench.{table}").dtypes
    rows = spark.sql(f"SELECT {_ROWS} FROM filling")
    missing = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in columns if name not in rows.columns]
    rows.selectExpr("*", *missing).select([name for name, _ in columns]).writeTo(f"lake.bench.{table}").append()


def batches(lake: Lake, writer: events.Writer, rows: int, count: int, size: int) -> list[Cost]:
    """Ingest batches of events over all keys and return the cost of each but the first."""
    batch_costs, writer.keys = [], rows
    for _ in range(count):
        # a file named like an earlier one would count as read
        folder = Path(tempfile.mkdtemp(prefix="growth-", dir=lake.folder))
        writer.write(folder, size)
        with costs() as cost:
            lake.ingest(_TABLE, f"{folder}/*.jsonl")
        batch_costs.append(cost)
        shutil.rmtree(folder)
    return batch_costs[1:]


def grow(lake: Lake, sizes: list[int], count: int, size: int) -> dict[int, dict[str, float]]:
    """Ingest batches at each size of the table and return the median cost of one, by size.

    :param count: batches at each size, besides the first.
    :param size: events per batch.
    """
    writer, filled, medians_by_rows = events.Writer(sizes[0]), 0, dict[int, dict[str, float]]()
    batches(lake, writer, sizes[0], 1, 1000)
    for rows in sizes:
        fill(lake, filled, rows)
        filled = rows
        costs = batches(lake, writer, rows, count + 1, size)
        medians_by_rows[rows] = {
            "seconds": round(statistics.median(one.seconds for one in costs), 2),
            "core_seconds": round(statistics.median(one.core_seconds for one in costs), 2),
        }
        print(f"{rows:,} rows: {medians_by_rows[rows]['seconds']} s a batch")
    return medians_by_rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1000000,10000000,50000000")
    parser.add_argument("--events", type=int, default=100_000, help="of a batch")
    parser.add_argument("--batches", type=int, default=5, help="at each size, besides the first")
    parser.add_argument("--folder", type=Path, default=Path("build/bench/ingest-growth"))
    arguments = parser.parse_args()
    lake = Lake(emptied(arguments.folder, "warehouse"))
    with only_own_lines(lake.folder / "output.log"):
        sizes = [int(rows) for rows in arguments.rows.split(",")]
        measured = grow(lake, sizes, arguments.batches, arguments.events)
        growth = {
            measure: round(measured[sizes[-1]][measure] / measured[sizes[0]][measure] - 1, 3)
            for measure in ("seconds", "core_seconds")
        }
        facts = {"events": arguments.events, "cores": os.cpu_count()}
        print(json.dumps({"name": "bench-ingest-growth", "ours": measured, "growth": growth, **facts}))


if __name__ == "__main__":
    main()
