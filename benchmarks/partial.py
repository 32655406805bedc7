"""Measure a batch of partial updates: with a target's ``merge`` setting, and by ``MERGE INTO`` with ``coalesce``.

    python -m benchmarks.partial [--rows 10000000,50000000] [--changes 100000,1000000]

Two tables hold the same rows, in files of a million, ascending by key. Each gets the same batches of updates, which
carry some columns of a row and leave the others null, with keys from the whole table. Ours records for each column
which event set it, so that late and duplicate events change nothing; the statement applies them as they arrive. The
first batch is not counted; the figures are medians. In the end both tables must hold the same. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from benchmarks import events
from benchmarks.deletes import Cost, costs, medians
from benchmarks.folders import emptied
from benchmarks.ingest import Lake
from benchmarks.ingest_growth import fill
from benchmarks.peers import merge_into
from benchmarks.terminal import only_own_lines

_OURS, _PEER = "partial", "merge_into"
# columns of the updates, in turn
_EVENT_COLUMNS = (("status", "version"), ("amount", "updated_at", "version"), ("note", "version"))


class Tables:
    """Our table and the statement's, with the same rows."""

    def __init__(self, lake: Lake, settings: dict[str, Any]) -> None:
        self._lake, self._settings, self._number = lake, {**settings, "merge": {"default": "last_non_null"}}, 0
        spark, self.rng = lake.session(), random.Random(3)
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
        merge_into.create(spark, f"lake.bench.{_PEER}", settings["format_version"])
        # makes ours, with all columns
        self.batch(range(1000), (tuple(events.COLUMNS),))

    def grow(self, first: int, end: int) -> None:
        """Insert rows of some keys, ascending, into each table."""
        for table in (_OURS, _PEER):
            fill(self._lake, first, end, table)

    def batch(
        self, keys: range | list[int], event_columns: Sequence[Collection[str]] = _EVENT_COLUMNS
    ) -> dict[str, Cost]:
        """Update some columns of rows in both tables and return the cost."""
        # a file named like an earlier one would count as read
        folder = Path(tempfile.mkdtemp(prefix="changes-", dir=self._lake.folder))
        self._number = events.write_updates(folder, keys, self._number, event_columns)
        spark = self._lake.session()
        work: dict[str, Callable[[str], object]] = {
            _OURS: lambda files: self._lake.ingest(_OURS, files, self._settings),
            _PEER: lambda files: merge_into.ingest(spark, f"lake.bench.{_PEER}", files, partial=True),
        }
        cost_by_contender = {}
        for contender, ingest_files in work.items():
            with costs() as cost:
                ingest_files(f"{folder}/*.jsonl")
            cost_by_contender[contender] = cost
        shutil.rmtree(folder)
        return cost_by_contender

    def check(self) -> None:
        """Check that both tables hold the same."""
        spark, names = self._lake.session(), ", ".join(events.COLUMNS)
        hashed = "SELECT count(*), bit_xor(xxhash64({})) FROM lake.bench.{}"
        ours, theirs = (tuple(spark.sql(hashed.format(names, table)).collect()[0]) for table in (_OURS, _PEER))
        assert ours == theirs, (ours, theirs)


def measured(tables: Tables, rows: int, changes: int, batches: int) -> dict[str, Any]:
    """Return the median cost of a batch for each, and how many times ours is cheaper."""
    costs = [tables.batch(tables.rng.sample(range(rows), changes)) for _ in range(batches + 1)][1:]
    results: dict[str, Any] = {"rows": rows, "changes": changes}
    results |= {name: medians([one[name] for one in costs]) for name in (_OURS, _PEER)}
    results["times_cheaper"] = round(results[_PEER]["core_seconds"] / results[_OURS]["core_seconds"], 2)
    print(f"{rows:,} rows, {changes:,} changes: ours {results[_OURS]}, MERGE INTO {results[_PEER]}")
    return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="10000000,50000000")
    parser.add_argument("--changes", default="100000,1000000")
    parser.add_argument("--batches", type=int, default=2, help="of each kind, besides the first")
    parser.add_argument("--deletes", choices=("equality", "resolved"), default="equality")
    parser.add_argument("--version", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/partial"))
    given = parser.parse_args()
    lake = Lake(emptied(given.folder, "warehouse"))
    with only_own_lines(lake.folder / "output.log"):
        settings = {"deletes": given.deletes, "format_version": given.version}
        tables, filled, results = Tables(lake, settings), 1000, []
        for rows in map(int, given.rows.split(",")):
            tables.grow(filled, rows)
            filled = rows
            results += [measured(tables, rows, int(changes), given.batches) for changes in given.changes.split(",")]
            tables.check()
        print(json.dumps({"name": "bench-partial", "cases": results, **settings, "cores": os.cpu_count()}))


if __name__ == "__main__":
    main()
