"""How many rows a table had after earlier runs, from snapshot summaries alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from lakecdc.metadata.last_write import SnapshotFacts
from lakecdc.metadata.totals import from_summary

# summary, by Iceberg: the application that has made the snapshot
_APPLICATION = "app-id"


@dataclass(frozen=True)
class EarlierRows:
    """The average number of rows after earlier runs.

    Equality deletes do not tell how many rows they have met, so that there may be two ends.

    :param runs: how many runs it is of.
    :param fewest: if each equality delete had met a row.
    :param most: if none had.
    """

    runs: int
    fewest: float
    most: float

    def change(self, rows: int) -> float:
        """The share by which a number of rows differs at least; infinite where there were none before."""
        nearest = min(max(rows, self.fewest), self.most)
        if rows == nearest:
            return 0.0
        return abs(rows - nearest) / nearest if nearest else float("inf")


def earlier_rows(snapshots: Iterable[SnapshotFacts], last: int) -> EarlierRows | None:
    """What the runs left behind that wrote to a branch, the newest one left out.

    Snapshots side by side of one application are one run, of which the last one counts.

    :param snapshots: of the branch, from its head towards the root.
    :param last: number of runs.
    :return: None if there was none.
    """
    writes = (snapshot for snapshot in snapshots if not snapshot.is_maintenance)
    runs = (next(found) for _, found in itertools.groupby(writes, _run))
    counts = [from_summary(run.summary) for run in itertools.islice(runs, 1, last + 1)]
    if not counts:
        return None
    most = [max(count.records - count.position_deletes, 0) for count in counts]
    fewest = [max(rows - count.equality_deletes, 0) for rows, count in zip(most, counts, strict=True)]
    return EarlierRows(len(counts), sum(fewest) / len(counts), sum(most) / len(counts))


def _run(snapshot: SnapshotFacts) -> object:
    return snapshot.summary.get(_APPLICATION, snapshot.snapshot_id)
