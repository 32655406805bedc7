"""What a batch of partial updates costs: by the setting ``merge`` of a target, and by ``MERGE INTO`` with ``coalesce``.

    python -m benchmarks.partial [--rows 10000000,50000000] [--changes 100000,1000000]

Two tables hold the same rows, in files of a million, ascending by key. Each takes the same batches of updates that tell
some columns of a row and leave the others null, with keys from the whole table. Ours knows for each column which event
told it, so that late and doubled events change nothing; the statement takes them as they arrive. The first batch is not
counted; the figures are medians. In the end both tables must hold the same. The last line is JSON.
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
# what updates tell, in turn
_TOLD = (("status", "version"), ("amount", "updated_at", "version"), ("note", "version"))


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

    def batch(self, keys: range | list[int], told: Sequence[Collection[str]] = _TOLD) -> dict[str, Cost]:
        """Update some columns of rows in both tables, and tell what that costs."""
        # a file of the same name as an earlier one would count as read
        folder = Path(tempfile.mkdtemp(prefix="changes-", dir=self._lake.folder))
        self._number = events.write_updates(folder, keys, self._number, told)
        spark = self._lake.session()
        work: dict[str, Callable[[str], object]] = {
            _OURS: lambda files: self._lake.take(_OURS, files, self._settings),
            _PEER: lambda files: merge_into.ingest(spark, f"lake.bench.{_PEER}", files, partial=True),
        }
        found = {}
        for contender, take in work.items():
            with costs() as cost:
                take(f"{folder}/*.jsonl")
            found[contender] = cost
        shutil.rmtree(folder)
        return found

    def check(self) -> None:
        """See whether both tables hold the same."""
        spark, names = self._lake.session(), ", ".join(events.COLUMNS)
        hashed = "SELECT count(*), bit_xor(xxhash64({})) FROM lake.bench.{}"
        ours, theirs = (tuple(spark.sql(hashed.format(names, table)).collect()[0]) for table in (_OURS, _PEER))
        assert ours == theirs, (ours, theirs)


def measured(tables: Tables, rows: int, changes: int, batches: int) -> dict[str, Any]:
    """Medians of what a batch costs each, and how many times ours is cheaper."""
    taken = [tables.batch(tables.rng.sample(range(rows), changes)) for _ in range(batches + 1)][1:]
    found: dict[str, Any] = {"rows": rows, "changes": changes}
    found |= {name: medians([one[name] for one in taken]) for name in (_OURS, _PEER)}
    found["times_cheaper"] = round(found[_PEER]["core_seconds"] / found[_OURS]["core_seconds"], 2)
    print(f"{rows:,} rows, {changes:,} changes: ours {found[_OURS]}, MERGE INTO {found[_PEER]}")
    return found


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
        tables, filled, found = Tables(lake, settings), 1000, []
        for rows in map(int, given.rows.split(",")):
            tables.grow(filled, rows)
            filled = rows
            found += [measured(tables, rows, int(changes), given.batches) for changes in given.changes.split(",")]
            tables.check()
        print(json.dumps({"name": "bench-partial", "cases": found, **settings, "cores": os.cpu_count()}))


if __name__ == "__main__":
    main()
