"""What the configuration says of removals: the part of the options by which a job that removes something is held to it.

A table's own properties are not part of it: the job reads them itself (:mod:`lakecdc.metadata.policy`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, time
from zoneinfo import ZoneInfo

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import check_zone
from lakecdc.contract.job_options import JobOptions


@dataclass(frozen=True)
class Window:
    """A daily time window in which jobs may run on a table.

    :param begins: ``HH:MM``.
    :param ends: ``HH:MM``; before ``begins`` it is on the next day.
    """

    begins: str
    ends: str

    def __post_init__(self) -> None:
        for text in (self.begins, self.ends):
            try:
                time.fromisoformat(text)
            except ValueError as error:
                raise SpecError(f"A window has {text!r}, which is no time of day.", hint='Write "22:30".') from error

    def holds(self, moment: datetime) -> bool:
        """Tell whether it holds a moment, given in the zone of the window."""
        begins, ends, at = time.fromisoformat(self.begins), time.fromisoformat(self.ends), moment.time()
        return begins <= at < ends if begins <= ends else at >= begins or at < ends


@dataclass(frozen=True)
class Protection:
    """What holds for removals from one table, besides the table's own properties.

    :param approve: a person has to agree first.
    :param min_age: seconds for which snapshots, or rows, are kept at least.
    :param windows: times of day outside of which nothing is removed, all of them at once.
    :param zone: time zone of the windows.
    :param beside: tables that it stands beside, ``namespace.name``, whose properties hold for it too.
    """

    approve: bool = False
    min_age: float = 0.0
    windows: tuple[Window, ...] = ()
    zone: str = "UTC"
    beside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_zone(self.zone, "protection.zone")
        if not 0 <= self.min_age < math.inf:
            raise SpecError(f"protection.min_age is {self.min_age}, not 0 or more seconds.")

    def closed_at(self, moment: datetime) -> Window | None:
        """Return a window that does not hold a moment, or None if all do.

        :param moment: with a zone.
        """
        at = moment.astimezone(ZoneInfo(self.zone))
        return next((window for window in self.windows if not window.holds(at)), None)


@dataclass(frozen=True)
class RemovingOptions(JobOptions):
    """Options of all jobs that remove something for good.

    :param protection: limits of removals by table, from the configuration. The table's own properties
        ``lakecdc.policy.…`` apply too, with or without this option.
    """

    protection: dict[str, Protection] = field(default_factory=dict)
