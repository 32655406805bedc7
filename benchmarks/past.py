"""Measure past states and changes against reading everything.

    python -m benchmarks.past [--rows 2000000] [--changed 0.01]

``changes``: see :mod:`benchmarks.past_changes`; ``moment``: see :mod:`benchmarks.past_moment`. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from benchmarks import past_changes, past_moment
from benchmarks.folders import emptied
from benchmarks.terminal import only_own_lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--changed", type=float, default=0.01, help="share of the rows that changes")
    parser.add_argument("--folder", type=Path, default=Path("build/bench/past"))
    given = parser.parse_args()
    folder = emptied(given.folder, "warehouse")
    with only_own_lines(folder / "output.log"):
        results = {
            "changes": past_changes.measure(folder, given.rows, given.changed),
            "moment": past_moment.measure(folder, given.rows, given.changed),
        }
        facts = {"rows": given.rows, "changed": given.changed, "cores": os.cpu_count()}
        print(json.dumps({"name": "bench-past", **results, **facts}))


if __name__ == "__main__":
    main()
