"""Freshness of a table: the age of the newest source moment that readers see, compared with what was promised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from lakecdc.contract.fields import parse_duration
from lakecdc.metadata.last_write import source_lag_seconds
from lakecdc.metadata.names import is_side_table

_REMEDY = "Check the last runs of its ingestion, and run it more often if they succeed."


@dataclass(frozen=True)
class Freshness:
    """A promise and how a table keeps it.

    :param promised_seconds: the highest age that was promised.
    :param source_time: newest source moment that readers see, ISO-8601 UTC; None if it is unknown.
    :param lag_seconds: its age; None if it is unknown.
    """

    promised_seconds: float
    source_time: str | None
    lag_seconds: float | None

    @property
    def is_kept(self) -> bool:
        """Check whether the promise is kept; an unknown age does not keep it."""
        return self.lag_seconds is not None and self.lag_seconds <= self.promised_seconds

    @property
    def late_seconds(self) -> float | None:
        """Return by how much the promise is missed, 0 if it is kept; None if the age is unknown."""
        return None if self.lag_seconds is None else round(max(0.0, self.lag_seconds - self.promised_seconds), 3)

    @property
    def problem(self) -> str | None:
        """Return why the promise is missed and what to do; None if it is kept."""
        if self.is_kept:
            return None
        promised = format_seconds(self.promised_seconds)
        if self.source_time is None or self.lag_seconds is None:
            return f"no source moment of its rows is known, and a freshness of {promised} is promised. {_REMEDY}"
        moment = self.source_time[:19].replace("T", " ")
        lag, late = format_seconds(self.lag_seconds), format_seconds(self.late_seconds or 0.0)
        return (
            f"readers see its source as of {moment} UTC, {lag} ago; a freshness of {promised} is promised and "
            f"missed by {late}. {_REMEDY}"
        )

    def facts(self) -> dict[str, Any]:
        """Return the promise as numbers for reports, metrics and measurements."""
        return {"freshness_promised_seconds": self.promised_seconds, "freshness_late_seconds": self.late_seconds}


def judge_freshness(promised: str, source_time: str | None, now: datetime) -> Freshness:
    """Compare the newest source moment that readers see with a promise, such as ``30m``.

    :param source_time: ``read_through`` of the table's current position, ISO-8601.
    """
    return Freshness(parse_duration(promised, "freshness"), source_time, source_lag_seconds(source_time, now))


def judge_table(
    promises: Mapping[str, str | None], table: str, source_time: str | None, now: datetime, *, is_fed: bool
) -> Freshness | None:
    """Judge a table by the promises of targets; None if nothing is promised.

    A table that only a pattern matches has a promise once ingestion has fed it: others may have such a name too.

    :param promises: by name or pattern of the targets, None for no promise; the table's own name counts, else the
        longest pattern that matches.
    :param is_fed: ingestion brings the table's rows.
    """
    matches = [target for target in promises if fnmatchcase(table, target)]
    if table not in promises and (not matches or source_time is None or not is_fed):
        return None
    promised = promises[table if table in promises else max(matches, key=len)]
    return None if promised is None or is_side_table(table) else judge_freshness(promised, source_time, now)


def format_seconds(seconds: float) -> str:
    """Format seconds in their largest unit, with the next smaller one."""
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    whole = round(seconds)
    size, unit = next((each for each in units if whole >= each[0]), units[-1])
    smaller = next((each for each in units if each[0] < size), None)
    rest = whole % size // smaller[0] if smaller else 0
    return f"{whole // size} {unit} {rest} {smaller[1]}" if smaller and rest else f"{whole // size} {unit}"
