"""Options that limit removals: the configuration's rules, and findings that a person approved.

A table's own properties are not part of them: the job reads them itself (:mod:`lakecdc.metadata.policy`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, time
from zoneinfo import ZoneInfo

from lakecdc.contract.errors import InputError, SpecError
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
                raise SpecError(
                    f"Invalid time of day {text!r} in a window.", hint='Use HH:MM, such as "22:30".'
                ) from error

    def holds(self, moment: datetime) -> bool:
        """Check whether it contains a moment in the window's zone."""
        begins, ends, at = time.fromisoformat(self.begins), time.fromisoformat(self.ends), moment.time()
        return begins <= at < ends if begins <= ends else at >= begins or at < ends


@dataclass(frozen=True)
class Protection:
    """Limits of removals from a table, besides the table's own properties.

    :param approve: a person must approve them first.
    :param min_age: minimum seconds for which snapshots, or rows, are kept.
    :param windows: removals happen only at times of day within all of these.
    :param zone: time zone of the windows.
    :param beside: ``namespace.name`` of the tables it belongs to, whose properties apply too.
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
        """Return a window that does not contain a moment with a zone, or None if all do."""
        at = moment.astimezone(ZoneInfo(self.zone))
        return next((window for window in self.windows if not window.holds(at)), None)


@dataclass(frozen=True)
class RemovingOptions(JobOptions):
    """Options of jobs that remove something irreversibly.

    :param protection: limits of removals by table, from the configuration. The table's own properties
        ``lakecdc.policy.…`` apply too, with or without this option.
    """

    protection: dict[str, Protection] = field(default_factory=dict)


@dataclass(frozen=True)
class Approved:
    """A dry run's list of findings that a person approved.

    :param uri: of the list, from the report of the dry run.
    :param sha256: hexadecimal digest of the list.
    """

    uri: str
    sha256: str


@dataclass(frozen=True)
class ApprovableOptions:
    """Options of jobs that can be restricted to approved findings.

    :param approved: by table, ``uri`` and ``sha256`` of a dry run's list, from its metric ``findings``: only what is in
        the list and found again is removed. A changed list is refused, and so is a table without one. Default: no
        approval is required.
    """

    approved: dict[str, Approved] | None = None

    def approval_of(self, table: str) -> Approved | None:
        """Return the approved list of a table, None if none is needed; raise :class:`InputError` if it is missing."""
        if self.approved is None:
            return None
        if table not in self.approved:
            raise InputError("Removals from it have not been approved.", table=table)
        return self.approved[table]
