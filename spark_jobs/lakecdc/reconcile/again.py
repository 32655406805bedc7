"""Repeated comparison of rows that differ, so that changes in flight are not reported as mismatches.

A row is a mismatch if the source had the same values in two reads and the table, fed past the first of them, had others
in between. For a source that does not tell how far the table was fed, the job waits for the full time allowed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from time import monotonic, sleep

from lakecdc.iceberg.table import IcebergTable, source_position
from lakecdc.reconcile.compare import Comparison, Difference, Differences

log = logging.getLogger(__name__)

_POLL_SECONDS = 5.0


@dataclass(frozen=True)
class Recheck:
    """Result of rechecking rows that differed.

    :param mismatches: rows that differ permanently.
    :param in_flight: number of rows whose change was still on its way.
    :param undecided: number of rows that differ but may be in flight.
    :param looks: number of times that rows were read.
    """

    mismatches: tuple[Difference, ...]
    in_flight: int = 0
    undecided: int = 0
    looks: int = 1


def recheck(comparison: Comparison, first: Differences, max_wait: float) -> Recheck:
    """Reread rows that just differed until each is a mismatch, in flight, or ``max_wait`` seconds are over."""
    table, source = comparison.pair.table, comparison.pair.source
    waiting, looks = dict(first.rows), 1
    mismatches: list[Difference] = []
    read_at, deadline = source.now(), monotonic() + max_wait
    while waiting:
        log.info("%s: %d rows differ", table.name, len(waiting))
        passed = read_at is None or _wait(table, read_at, deadline)
        head = table.head()
        again, looks = comparison.differences_of(head.id if head else None, list(waiting.values())).rows, looks + 1
        read_at = source.now()
        for_good = [each for key, each in again.items() if passed and each.source == waiting[key].source]
        mismatches += for_good
        waiting = {key: each for key, each in again.items() if each not in for_good}
        if monotonic() >= deadline:
            break
    in_flight = len(first.rows) - len(mismatches) - len(waiting)
    return Recheck(tuple(mismatches), in_flight, len(waiting), looks)


def _wait(table: IcebergTable, moment: datetime, deadline: float) -> bool:
    """Wait until a table was fed past a moment of its source; return False if it is known not to be."""
    log.info("%s: waiting until it has been fed past %s", table.name, moment.isoformat())
    while True:
        position = source_position(table.refresh())
        through = datetime.fromisoformat(position.read_through) if position and position.read_through else None
        if through is not None and through >= moment:
            return True
        left = deadline - monotonic()
        if left <= 0:
            return through is None
        sleep(min(_POLL_SECONDS, left))
