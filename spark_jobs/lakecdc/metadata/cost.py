"""Money: what the CPU time of jobs costs and what their readers save, by configured prices."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakecdc.contract.errors import SpecError

_MONTH = timedelta(days=365.25 / 12)
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Prices:
    """Prices in one currency.

    :param core_hour: of a core for an hour. Costs count the CPU time of Spark's tasks; drivers, idle cores and
        the start of applications come on top.
    :param thousand_reads: of a thousand read requests to the object store, for the estimate of what readers save.
        Requests of jobs are not counted.
    :param currency: their name, such as ``EUR``.
    """

    core_hour: float
    thousand_reads: float = 0.0
    currency: str = "USD"

    def __post_init__(self) -> None:
        for name in ("core_hour", "thousand_reads"):
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise SpecError(f"Expected prices.{name} of 0 or more, got {value}.")

    def of_cpu(self, core_seconds: float) -> float:
        """Return the price of CPU time."""
        return core_seconds / 3600 * self.core_hour

    def of_reads(self, requests: float) -> float:
        """Return the price of read requests."""
        return requests / 1000 * self.thousand_reads

    def format(self, amount: float) -> str:
        """Format an amount with the currency; small amounts keep two digits."""
        decimals = 2 if not amount else max(2, 1 - math.floor(math.log10(abs(amount))))
        return f"{amount:,.{decimals}f} {self.currency}"

    def format_cpu(self, core_seconds: float) -> str:
        """Format the price of CPU time."""
        return self.format(self.of_cpu(core_seconds))


def days_between(oldest: datetime, now: datetime) -> float:
    """Return the days that a history covers, at least one, since less is no basis for a month."""
    return max((now - oldest) / _DAY, 1.0)


def per_month(amount: float, days: float) -> float:
    """Extrapolate an amount of some days to an average month."""
    return amount / days * (_MONTH / _DAY)


def saved_requests(spared: Iterable[tuple[datetime, float]], reads_per_day: float, now: datetime) -> float:
    """Estimate the read requests that jobs have saved readers.

    Assumes that each read scans the whole table, with one request per file, and that files would have stayed forever
    without the job.

    :param spared: times of jobs, with the number of files fewer that a scan opened after each.
    """
    return sum(files * reads_per_day * max((now - at) / _DAY, 0.0) for at, files in spared)
