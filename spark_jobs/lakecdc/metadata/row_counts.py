"""Row counts of a table after earlier runs, from snapshot summaries alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from lakecdc.metadata.last_write import SnapshotFacts
from lakecdc.metadata.totals import from_summary

# summary entry of Iceberg: the application that created the snapshot
_APPLICATION = "app-id"


@dataclass(frozen=True)
class EarlierRows:
    """The average number of rows after earlier runs.

    Equality deletes do not tell how many rows they matched, so this is a range.

    :param runs: number of runs.
    :param fewest: if each equality delete had matched a row.
    :param most: if none had.
    """

    runs: int
    fewest: float
    most: float

    def change(self, rows: int) -> float:
        """Return the minimum share by which a number of rows differs; infinite if there were none before."""
        nearest = min(max(rows, self.fewest), self.most)
        if rows == nearest:
            return 0.0
        return abs(rows - nearest) / nearest if nearest else float("inf")


def earlier_rows(snapshots: Iterable[SnapshotFacts], last: int) -> EarlierRows | None:
    """Average the rows after runs that wrote to a branch, without the newest one.

    Consecutive snapshots of one application are one run, of which the last one counts.

    :param snapshots: of the branch, from its head towards the root.
    :param last: number of runs.
    :return: None if there was none.
    """
    writes = (snapshot for snapshot in snapshots if not snapshot.is_maintenance)
    runs = (next(snapshots_of_run) for _, snapshots_of_run in itertools.groupby(writes, _run))
    counts = [from_summary(run.summary) for run in itertools.islice(runs, 1, last + 1)]
    if not counts:
        return None
    most = [max(count.records - count.position_deletes, 0) for count in counts]
    fewest = [max(rows - count.equality_deletes, 0) for rows, count in zip(most, counts, strict=True)]
    return EarlierRows(len(counts), sum(fewest) / len(counts), sum(most) / len(counts))


def _run(snapshot: SnapshotFacts) -> object:
    return snapshot.summary.get(_APPLICATION, snapshot.snapshot_id)
