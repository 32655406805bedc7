"""What jobs have really taken, held against what they were guessed to take: the correction of the next guesses."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# newest runs of a job on a table that count; older ones tell of another table
_NEWEST = 8
# newest runs of a job on all tables that count; older ones tell of another machine, or of busier days
_NEWEST_OF_JOB = 20
# with fewer the table's own runs say less than all of the job's
_ENOUGH = 3


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
class Calibration:
    """Factors by which guesses are corrected.

    :param by_table: by job and table.
    :param by_job: by job, for tables of which too little is known.
    """

    by_table: Mapping[tuple[str, str], float] = field(default_factory=dict)
    by_job: Mapping[str, float] = field(default_factory=dict)

    def corrected(self, job: str, table: str, guessed: float) -> float:
        """What a job is predicted to take, in core-seconds.

        :param guessed: see :class:`lakecdc.metadata.work.Work`.
        """
        factor = self.by_table.get((job, table), self.by_job.get(job, 1.0))
        return round(guessed * factor, 3)


def calibrated(runs: Iterable[Run]) -> Calibration:
    """Learn the factors: medians, since a run on a busy machine, or of a table that has just grown, tells little.

    :param runs: the newest first.
    """
    by_table: dict[tuple[str, str], list[float]] = defaultdict(list)
    by_job: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run.guessed > 0 and run.taken > 0:
            ratio = run.taken / run.guessed
            if len(by_table[run.job, run.table]) < _NEWEST:
                by_table[run.job, run.table].append(ratio)
            if len(by_job[run.job]) < _NEWEST_OF_JOB:
                by_job[run.job].append(ratio)
    return Calibration(
        {key: statistics.median(found) for key, found in by_table.items() if len(found) >= _ENOUGH},
        {job: statistics.median(found) for job, found in by_job.items()},
    )
