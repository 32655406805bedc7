"""Measure the quality of the plan: how much read cost a budget removes, by the order of tables.

    python -m benchmarks.plan [--seed 1] [--tables 50] [--budget 0.15] [--sizes tpc_ds,file_systems,ycsb,drawn]

Lakes of 50 tables with equality deletes: three have sizes of published distributions, one is drawn from the seed
(``benchmarks.lakes``). ``rewrite_delete_files`` runs table by table in one application until a share of the predicted
cost of the whole lake is spent. A contender's figure is the read cost removed (``delete_read_cost`` of the tables'
health) per core-second of its jobs' tasks. Contenders are the plan of the hourly DAG, tables with most files first, and
tables in order; each begins with the same tables and runs twice.

Before that the job runs on a lake of other tables. Its cost there, and then that of each contender, calibrates the next
one's predictions, like the audit does. Errors are those of all jobs of the contenders, before and after. The plan skips
jobs that do not fit into the rest of the budget; the others exceed it by a part of their last job. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow_provider_lakecdc.governance.assess_tables import assess
from airflow_provider_lakecdc.governance.assessment import Steps
from airflow_provider_lakecdc.governance.discovery import TableSelection
from benchmarks.folders import emptied
from benchmarks.lakes import JOB, SIZES, Lake, shapes
from benchmarks.terminal import only_own_lines
from lakecdc.contract.spec import parse_spec
from lakecdc.metadata.calibration import Run, calibrate
from lakecdc.metadata.plan import Action, choose
from lakecdc.metadata.policy import TablePolicy
from lakecdc.runtime.run import run, work_of

#: picks the next of the remaining tables for the remaining budget; None ends the contender's work
Next = Callable[[Sequence[Action], float], Action | None]
_LEARNT_FROM, _FIRST = 20, 5
_KINDS = ("data_files", "equality_delete_files", "position_delete_files", "deletion_vectors")


@dataclass(frozen=True)
class Done:
    """One job on one table.

    :param core_seconds: core-seconds of its tasks.
    :param removed: removed ``delete_read_cost``.
    """

    action: Action
    core_seconds: float
    removed: float

    def error(self, predicted: float | None) -> float:
        """Return the relative error of a prediction."""
        return abs((predicted or 0.0) / self.core_seconds - 1)


class Bench:
    """One lake and the work its tables need."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        connection: Any = lake
        selection = TableSelection(("bench.*",), (), {"*": TablePolicy(("*",))})
        assessment = assess(connection, selection, Steps({JOB: {}}))
        self.actions = assessment.actions
        healths = {each.table: each.health or {} for each in assessment.tables}
        self.files = {table: sum(health[kind] for kind in _KINDS) for table, health in healths.items()}

    def work(self, actions: Iterable[Action], following: Next, budget: float = float("inf")) -> list[Done]:
        """Work on the initial tables until the budget is spent or nothing more fits.

        :param budget: core-seconds.
        """
        self._roll_back()
        left, done = list(actions), list[Done]()
        while (rest := budget - sum(each.core_seconds for each in done)) > 0 and (action := following(left, rest)):
            left.remove(action)
            done.append(self._do(action))
        return done

    def _roll_back(self) -> None:
        self._lake.roll_back()

    def _do(self, action: Action) -> Done:
        spec = {"version": 1, "job": JOB, "catalog": self._lake.catalog, "tables": [action.table]}
        (report,) = run(parse_spec(spec), work_of(JOB)).tables
        assert report.outcome == "done" and report.metrics["equality_delete_files_after"] == 0, report
        before, after = (report.metrics[f"delete_read_cost_{moment}"] for moment in ("before", "after"))
        return Done(action, report.metrics["core_seconds"], before - after)


def predicted(actions: Iterable[Action], done: Sequence[Done]) -> list[Action]:
    """Return actions like the DAG's plan, predicted from finished jobs.

    :param done: finished jobs, the newest last.
    """
    runs = (Run(JOB, d.action.table, d.action.guessed_core_seconds or 0.0, d.core_seconds) for d in reversed(done))
    known = calibrate(runs)
    return [
        replace(action, core_seconds=known.predict(JOB, action.table, action.guessed_core_seconds or 0.0))
        for action in actions
    ]


def planned(left: Sequence[Action], budget: float) -> Action | None:
    """Return the job that the hourly DAG's plan would run first within the remaining budget."""
    return next(iter(choose(left, budget=budget).chosen), None)


def in_order(left: Sequence[Action], _: float) -> Action | None:
    """Return the first remaining job."""
    return left[0] if left else None


def learnt(bench: Bench) -> list[Done]:
    """Run all jobs on a lake, after some uncounted ones that warm up the JVM."""
    bench.work(bench.actions[:_FIRST], in_order)
    return bench.work(bench.actions, in_order)


def contest(bench: Bench, part: float, before: Sequence[Done]) -> dict[str, list[Done]]:
    """Return the jobs of each contender.

    :param part: budget, as a share of the predicted cost of all tables.
    :param before: finished jobs to predict from.
    """
    budget = part * sum(action.core_seconds or 0.0 for action in predicted(bench.actions, before))
    contenders: dict[str, tuple[Next, Callable[[Action], float]]] = {
        "planned": (planned, lambda action: 0),
        "most_files_first": (in_order, lambda action: -bench.files[action.table]),
        "round_robin": (in_order, lambda action: 0),
    }
    done_by_contender: dict[str, list[Done]] = {name: [] for name in contenders}
    # forwards and backwards, as a JVM gets faster
    for name in (*contenders, *reversed(contenders)):
        following, order = contenders[name]
        known = [*before, *(done for earlier in done_by_contender.values() for done in earlier)]
        done_by_contender[name] += bench.work(sorted(predicted(bench.actions, known), key=order), following, budget)
    return done_by_contender


def facts(contenders: dict[str, list[Done]]) -> dict[str, Any]:
    """Return what each contender removed, and how many times better the plan is than the best other."""
    results = {}
    for name, done in contenders.items():
        removed, core_seconds = sum(d.removed for d in done), sum(d.core_seconds for d in done)
        results[name] = {
            "jobs": len(done),
            "removed": round(removed, 1),
            "core_seconds": round(core_seconds, 1),
            "removed_per_core_second": round(removed / core_seconds, 1) if done else 0.0,
        }
    ours, *others = (each["removed_per_core_second"] for each in results.values())
    together = [each for done in contenders.values() for each in done]
    return {**results, "times_the_better": round(ours / max(others), 2), **errors_of(together)}


def errors_of(done: Sequence[Done]) -> dict[str, Any]:
    """Return the median errors of predictions."""
    return {
        "jobs": len(done),
        "guess_error": round(statistics.median(d.error(d.action.guessed_core_seconds) for d in done), 3),
        "calibrated_error": round(statistics.median(d.error(d.action.core_seconds) for d in done), 3),
        "median_core_seconds": round(statistics.median(d.core_seconds for d in done), 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--budget", type=float, default=0.15, help="part of what all tables would take")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--folder", type=Path, default=Path("build/bench/plan"))
    given = parser.parse_args()
    folder = emptied(given.folder)
    with only_own_lines(folder / "output.log"):
        drawn = shapes("drawn", min(_LEARNT_FROM, given.tables), given.seed + 1)
        done = learnt(Bench(Lake(folder / "learnt_from", drawn, given.seed)))
        print(f"the job ran on {len(done)} other tables")
        results, others = {}, len(done)
        for name in given.sizes.split(","):
            lake = Lake(folder / name, shapes(name, given.tables, given.seed), given.seed)
            contenders = contest(Bench(lake), given.budget, done)
            results[name] = facts(contenders)
            done += [each for of_one in contenders.values() for each in of_one]
            rates = {
                of: each["removed_per_core_second"] for of, each in results[name].items() if isinstance(each, dict)
            }
            print(f"{name}, removed per core-second: {', '.join(f'{of} {rate}' for of, rate in rates.items())}")
        errors = errors_of(done[others:])
        setting = {"seed": given.seed, "tables": given.tables, "budget": given.budget, "cores": os.cpu_count()}
        print(json.dumps({"name": "bench-plan", **results, **errors, **setting}))


if __name__ == "__main__":
    main()
