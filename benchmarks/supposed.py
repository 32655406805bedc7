"""Check that the plan is good by more than chance: many simulated lakes, whose jobs take the predicted time.

    python -m benchmarks.supposed [--seeds 40] [--tables 50] [--budget 0.15]

The contest of ``benchmarks.plan``, over the metadata that its lakes would have, in seconds and without Spark: how many
times better than the best other the plan is, over the seeds; the upper bound for any plan, if parts of jobs could be
run; and the share of it that is reached. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import TYPE_CHECKING

from benchmarks.lakes import JOB, SIZES, Shape, commits, shapes
from benchmarks.plan import Bench, Done, contest, facts
from lakecdc.metadata.file_facts import Content, LiveFile, by_partition
from lakecdc.metadata.health import measure_health
from lakecdc.metadata.plan import Action, choose
from lakecdc.metadata.work import of_delete_files

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCOPE = (0, "{}")
_BYTES_OF_A_ROW, _BYTES_OF_A_DELETE = 20, 8


class Supposed(Bench):
    """A lake that exists only as simulated metadata."""

    def __init__(self, drawn: Sequence[Shape]) -> None:
        files = {f"bench.t{number:03}": _files(shape) for number, shape in enumerate(drawn)}
        self.actions = tuple(_action(table, live) for table, live in files.items())
        self.files = {table: len(live) for table, live in files.items()}

    def _roll_back(self) -> None:
        pass

    def _do(self, action: Action) -> Done:
        return Done(action, action.guessed_core_seconds or 0.0, action.benefit)


def most_possible(actions: Sequence[Action], budget: float) -> float:
    """Return the most that any plan can remove: the worthiest jobs, and a part of the one at the budget's end."""
    benefit, left = 0.0, budget
    for action in sorted(actions, key=lambda each: -each.worth):
        cost = action.core_seconds or 0.0
        if cost > left:
            return benefit + action.benefit * left / cost
        benefit, left = benefit + action.benefit, left - cost
    return benefit


def figures(distribution: str, tables: int, part: float, seeds: int) -> dict[str, dict[str, float]]:
    """Return the quartiles of each figure, over lakes that differ by chance alone.

    :param part: budget, as a share of the cost of all tables.
    """
    values_by_figure: dict[str, list[float]] = {"times_the_better": [], "times_possible": [], "part_of_possible": []}
    for seed in range(1, seeds + 1):
        lake = Supposed(shapes(distribution, tables, seed))
        budget = part * sum(action.core_seconds or 0.0 for action in lake.actions)
        result, most = facts(contest(lake, part, ())), most_possible(lake.actions, budget)
        others = max(result[name]["removed_per_core_second"] for name in ("most_files_first", "round_robin"))
        values_by_figure["times_the_better"].append(result["times_the_better"])
        values_by_figure["times_possible"].append(most / budget / others)
        values_by_figure["part_of_possible"].append(choose(lake.actions, budget=budget).benefit / most)
    return {name: _quarters(values) for name, values in values_by_figure.items()}


def _quarters(values: Sequence[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return {"lowest_quarter": round(low, 2), "median": round(middle, 2), "highest_quarter": round(high, 2)}


def _files(shape: Shape) -> list[LiveFile]:
    """Return the files ``benchmarks.lakes`` would write."""
    rows = max(shape.rows // shape.files, 1)
    live_files = [
        LiveFile(Content.DATA, _SCOPE, rows * _BYTES_OF_A_ROW, rows, 1, f"data-{number}")
        for number in range(shape.files)
    ]
    for sequence, count in enumerate(commits(shape), 2):
        deletes = shape.deletes
        new = LiveFile(Content.DATA, _SCOPE, deletes * _BYTES_OF_A_ROW, deletes, sequence, f"changed-{sequence}")
        keys = LiveFile(Content.EQUALITY_DELETES, _SCOPE, deletes * _BYTES_OF_A_DELETE, deletes, sequence, None)
        live_files += [new, *[keys] * count]
    return live_files


def _action(table: str, files: Sequence[LiveFile]) -> Action:
    health = measure_health(files, target_file_bytes=2**25, snapshots=3, manifests=())
    work = of_delete_files(health, by_partition(files)[_SCOPE], 3)
    return Action(table, JOB, work.reason, work.benefit, work.core_seconds, work.core_seconds, work.bytes)


def main() -> None:
    """Compute and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40, help="lakes of each distribution")
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--budget", type=float, default=0.15, help="part of what all tables would take")
    given = parser.parse_args()
    results = {name: figures(name, given.tables, given.budget, given.seeds) for name in SIZES}
    print(json.dumps({"name": "bench-plan-supposed", **results, **vars(given)}))


if __name__ == "__main__":
    main()
