"""Correction of cost estimates by the measured cost of earlier runs.

The cost of a job is modelled as ``factor × guess ^ exponent × share of the table``: the factor describes the machine
and the lake's files, the exponent how the cost grows with the guess, and the share what the guess does not know, such
as the width of a table's rows.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# number of newest runs of a job on a table that count; the table was different before
_NEWEST = 8
# number of newest runs of a job on all tables that count; the machine may have been different before
_NEWEST_OF_JOB = 100
# an exponent needs at least this many runs, with guesses this factor apart; it is never far from 1
_ENOUGH, _APART = 10, 4.0
_LEAST_EXPONENT, _MOST_EXPONENT = 0.5, 1.5
# number of runs that weigh as much as the prior of an average table
_LIKE_OTHERS = 1.0


@dataclass(frozen=True)
class Run:
    """One run of a job on one table: core-seconds guessed before any correction, and measured."""

    job: str
    table: str
    guessed: float
    measured: float


@dataclass(frozen=True)
class Curve:
    """Cost of a job on an average table, by its guess."""

    factor: float = 1.0
    exponent: float = 1.0

    def at(self, guessed: float) -> float:
        """Return the cost in core-seconds."""
        return self.factor * math.pow(guessed, self.exponent)


@dataclass(frozen=True)
class Calibration:
    """Correction of guesses: curves by job, and factors of tables relative to them by job and table."""

    by_job: Mapping[str, Curve] = field(default_factory=dict)
    by_table: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def predict(self, job: str, table: str, guessed: float) -> float:
        """Predict the cost of a job in core-seconds from a guess (:class:`lakecdc.metadata.work.Work`)."""
        curve = self.by_job.get(job, Curve())
        return round(curve.at(guessed) * self.by_table.get((job, table), 1.0), 3)


def calibrate(runs: Iterable[Run]) -> Calibration:
    """Learn the correction by medians, which ignore disturbed runs and tables that have just grown."""
    by_job: dict[str, list[Run]] = defaultdict(list)
    by_table: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        of_table = by_table[run.job, run.table]
        if run.guessed > 0 and run.measured > 0 and len(of_table) < _NEWEST:
            of_table.append(run)
            by_job[run.job].append(run)
    curves = {job: _curve(job_runs[:_NEWEST_OF_JOB]) for job, job_runs in by_job.items()}
    return Calibration(
        curves, {key: _share(job_runs, curves[key[0]]) for key, job_runs in by_table.items() if job_runs}
    )


def _curve(runs: Sequence[Run]) -> Curve:
    """Fit a line through the logarithms by the median of pairwise slopes (Theil–Sen)."""
    exponent = 1.0
    guesses = [run.guessed for run in runs]
    if len(runs) >= _ENOUGH and max(guesses) >= _APART * min(guesses):
        slopes = [
            math.log(one.measured / other.measured) / math.log(one.guessed / other.guessed)
            for one, other in itertools.combinations(runs, 2)
            # the slope between similar guesses is noise
            if abs(math.log(one.guessed / other.guessed)) > 0.5
        ]
        exponent = min(max(statistics.median(slopes), _LEAST_EXPONENT), _MOST_EXPONENT)
    return Curve(statistics.median(run.measured / math.pow(run.guessed, exponent) for run in runs), exponent)


def _share(runs: Sequence[Run], curve: Curve) -> float:
    """Return a table's factor relative to the curve, closer to 1 the fewer runs it has."""
    factor = statistics.median(run.measured / curve.at(run.guessed) for run in runs)
    return math.pow(factor, len(runs) / (len(runs) + _LIKE_OTHERS))
