"""Rows that differ looked at again, once the table has been fed past the moment of reading: changes on their way agree.

A row is a mismatch if the source had the same values at two readings and the table, fed past the first of them, has
others in between. Where nothing tells how far the table has been fed, the job waits for as long as it may.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from time import monotonic, sleep
from typing import TYPE_CHECKING

from lakecdc.iceberg.table import carrier_of
from lakecdc.metadata.positions import current_position

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.reconcile.compare import Comparison, Difference, Found

log = logging.getLogger(__name__)

_POLL_SECONDS = 5.0


@dataclass(frozen=True)
class Judged:
    """What became of rows that differed.

    :param mismatches: they differ for good.
    :param in_flight: how many were on their way.
    :param undecided: how many differ, and it is not known whether they are on their way.
    :param looks: how often rows were looked at.
    """

    mismatches: tuple[Difference, ...]
    in_flight: int = 0
    undecided: int = 0
    looks: int = 1


def judged(comparison: Comparison, found: Found, max_wait: float) -> Judged:
    """Look at rows again until it is known of each whether it differs for good.

    :param found: by the first look, a moment ago.
    :param max_wait: seconds.
    """
    table, source = comparison.pair.table, comparison.pair.source
    waiting, looks = dict(found.rows), 1
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
    in_flight = len(found.rows) - len(mismatches) - len(waiting)
    return Judged(tuple(mismatches), in_flight, len(waiting), looks)


def _wait(table: IcebergTable, moment: datetime, deadline: float) -> bool:
    """Wait until a table has been fed past a moment of its source; False if it has not, for all that is known."""
    log.info("%s: waiting until it has been fed past %s", table.name, moment.isoformat())
    while True:
        through = _read_through(table.refresh())
        if through is not None and through >= moment:
            return True
        left = deadline - monotonic()
        if left <= 0:
            return through is None
        sleep(min(_POLL_SECONDS, left))


def _read_through(table: IcebergTable) -> datetime | None:
    position = current_position(carrier_of(table.ancestors()), table.properties)
    return datetime.fromisoformat(position.read_through) if position and position.read_through else None
