"""Measure restoring a moment from the nearest snapshot and later events, against folding the whole history.

A table is fed in one batch and then in twenty small ones, with a history table. ``restore_moment`` makes the branch of
a moment in the middle of the eleventh. The query of ``docs/concepts/modes.md`` folds the whole history; its rows are
counted.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from benchmarks.deletes import costs
from benchmarks.events import Writer
from lakecdc.contract.spec import parse_spec
from lakecdc.iceberg.core_time import CoreTime
from lakecdc.ingest.job import ingest
from lakecdc.moments.job import restore_moment
from lakecdc.runtime.run import run
from lakecdc.runtime.session import open_session

if TYPE_CHECKING:
    from pathlib import Path

_BATCHES = 20
_MIDDLE = 10.5
_TABLE, _HISTORY = "bench.orders", "bench.orders_history"
_FOLDED = """
    SELECT count(*) FROM (
      SELECT _lakecdc_op, row_number() OVER (PARTITION BY id ORDER BY _lakecdc_order DESC) AS place
      FROM lake.bench.orders_history WHERE _lakecdc_source_time <= timestamp_millis({moment}))
    WHERE place = 1 AND _lakecdc_op != 'd'"""


def measure(folder: Path, rows: int, changed: float) -> dict[str, Any]:
    """Return the cost of each way: seconds, CPU seconds of Spark's tasks, and those of all processes.

    :param folder: folder of the catalog, the warehouse and the events.
    :param rows: events of the first batch.
    :param changed: size of each later batch, as a share of them.
    """
    uri = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    document: dict[str, Any] = {"version": 1, "catalog": {"name": "lake", "properties": {"type": "sql", **uri}}}
    source = {"type": "files", "path": f"{folder}/events/*/*.jsonl", "format": "debezium-json"}
    target = {"table": _TABLE, "key": ["id"], "partition_by": ["bucket(4, id)"], "history_table": _HISTORY}
    feed = parse_spec({**document, "job": "ingest", "source": source, "target": target})
    writer, count = Writer(rows), int(rows * changed)
    for number in range(_BATCHES + 1):
        events = writer.write(folder / f"events/{number:02d}", count if number else rows)
        (report,) = run(feed, ingest).tables
        assert report.outcome == "done", report.reason
        print(f"batch {number}: {events.count} events")
    spark = open_session(feed.catalog, "bench-past")
    first = json.loads((folder / "events/00/part-000.jsonl").read_text().splitlines()[0])["source"]["ts_ms"]
    moment = int(first + rows + _MIDDLE * count)
    ours, theirs = [], []
    for number in range(3):
        options = {
            "moment": datetime.fromtimestamp(moment / 1000, UTC).isoformat(),
            "history_tables": {_TABLE: _HISTORY},
            "branch": f"moment{number}",
        }
        spec = parse_spec({**document, "job": "restore_moment", "tables": [_TABLE], "options": options})
        tasks = CoreTime(spark)
        with costs() as cost:
            (restored,) = run(spec, restore_moment).tables
        assert restored.outcome == "done", restored.reason
        ours.append((cost.seconds, round(tasks.seconds(), 2), cost.core_seconds))
        tasks = CoreTime(spark)
        with costs() as cost:
            folded = spark.sql(_FOLDED.format(moment=moment)).collect()[0][0]
        theirs.append((cost.seconds, round(tasks.seconds(), 2), cost.core_seconds))
        there = spark.sql(f"SELECT count(*) FROM lake.{_TABLE} VERSION AS OF 'moment{number}'").collect()[0][0]
        assert there == folded, (there, folded)
        print(f"restored {ours[-1]}, folded {theirs[-1]}")
    names = ("seconds", "task_seconds", "core_seconds")
    # the median of each measure
    medians = [dict(zip(names, map(_middle, zip(*each, strict=True)), strict=True)) for each in (ours, theirs)]
    added = int(restored.metrics["events_restored"])
    return {
        "ours": medians[0],
        "whole_history": medians[1],
        "events_restored": added,
        "rows_at_the_moment": int(folded),
    }


def _middle(values: tuple[float, ...]) -> float:
    return sorted(values)[len(values) // 2]
