"""What jobs have really taken, held against what they were guessed to take: the correction of the next guesses.

What a job takes is learnt as ``factor × guess ^ exponent × share of the table``: the factor tells of the machine and of
the lake's files, the exponent of how far the guess counts too much or too little of what grows with a table, and the
share of what the guess knows nothing of, such as the width of a table's rows.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# newest runs of a job on a table that count; older ones tell of another table
_NEWEST = 8
# newest runs of a job on all tables that count; older ones tell of another machine
_NEWEST_OF_JOB = 100
# an exponent is learnt from so many runs at least, whose guesses are so many times apart; it is never far from 1
_ENOUGH, _APART = 10, 4.0
_LEAST_EXPONENT, _MOST_EXPONENT = 0.5, 1.5
# runs of a table that weigh as much as that it is a table like the others
_LIKE_OTHERS = 1.0


@dataclass(frozen=True)
class Run:
    """One run of a job on one table.

    :param guessed: core-seconds before any correction.
    :param taken: core-seconds.
    """

    job: str
    table: str
    guessed: float
    taken: float


@dataclass(frozen=True)
class Curve:
    """What a job takes on a table like the others, by what it was guessed to take."""

    factor: float = 1.0
    exponent: float = 1.0

    def at(self, guessed: float) -> float:
        """Core-seconds."""
        return self.factor * math.pow(guessed, self.exponent)


@dataclass(frozen=True)
class Calibration:
    """What guesses are corrected by.

    :param by_job: of each job that has run.
    :param by_table: how many times the job's curve a table takes, by job and table.
    """

    by_job: Mapping[str, Curve] = field(default_factory=dict)
    by_table: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def corrected(self, job: str, table: str, guessed: float) -> float:
        """What a job is predicted to take, in core-seconds.

        :param guessed: see :class:`lakecdc.metadata.work.Work`.
        """
        curve = self.by_job.get(job, Curve())
        return round(curve.at(guessed) * self.by_table.get((job, table), 1.0), 3)


def calibrated(runs: Iterable[Run]) -> Calibration:
    """Learn: by medians, since a run that was disturbed, or of a table that has just grown, tells little.

    :param runs: the newest first.
    """
    by_job: dict[str, list[Run]] = defaultdict(list)
    by_table: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        of_table = by_table[run.job, run.table]
        if run.guessed > 0 and run.taken > 0 and len(of_table) < _NEWEST:
            of_table.append(run)
            by_job[run.job].append(run)
    curves = {job: _curve(found[:_NEWEST_OF_JOB]) for job, found in by_job.items()}
    return Calibration(curves, {key: _share(found, curves[key[0]]) for key, found in by_table.items() if found})


def _curve(runs: Sequence[Run]) -> Curve:
    """The line through the logarithms whose slope is the median of those between two runs (Theil–Sen)."""
    exponent = 1.0
    guesses = [run.guessed for run in runs]
    if len(runs) >= _ENOUGH and max(guesses) >= _APART * min(guesses):
        slopes = [
            math.log(one.taken / other.taken) / math.log(one.guessed / other.guessed)
            for one, other in itertools.combinations(runs, 2)
            # of guesses close to each other it tells of chance alone
            if abs(math.log(one.guessed / other.guessed)) > 0.5
        ]
        exponent = min(max(statistics.median(slopes), _LEAST_EXPONENT), _MOST_EXPONENT)
    return Curve(statistics.median(run.taken / math.pow(run.guessed, exponent) for run in runs), exponent)


def _share(runs: Sequence[Run], curve: Curve) -> float:
    """What a table takes of the curve: nearer to 1 the fewer its runs are."""
    found = statistics.median(run.taken / curve.at(run.guessed) for run in runs)
    return math.pow(found, len(runs) / (len(runs) + _LIKE_OTHERS))
