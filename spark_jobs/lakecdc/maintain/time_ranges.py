"""Which data files lie before a moment as a whole, and where the ones before can be parted from the others."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

Unit = Literal["hour", "day", "month", "year"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class FileTimes:
    """Where a data file lies in time; times are microseconds since 1970, UTC.

    :param lower: of its oldest row; None if nobody has written that down.
    :param upper: of its newest row; None likewise.
    :param nulls: some of its rows may have no time.
    """

    rows: int
    bytes: int
    lower: int | None
    upper: int | None
    nulls: bool = False

    @property
    def first(self) -> float:
        """Time of its oldest row at the earliest."""
        return -math.inf if self.lower is None else self.lower

    @property
    def last(self) -> float:
        """Time of the newest row that it may have to keep: a row without a time always stays."""
        return math.inf if self.upper is None or self.nulls else self.upper


@dataclass(frozen=True)
class Cut:
    """Where a table is cut.

    :param below: all rows before this time go; None if none do.
    :param whole: files that go with them.
    :param mixed: files that hold rows on both sides.
    :param partitions: units of time that lose rows.
    :param left: units of time with rows before the cutoff that are left to later runs.
    """

    below: int | None
    whole: tuple[FileTimes, ...]
    mixed: tuple[FileTimes, ...]
    partitions: int
    left: int


def between_files(files: Iterable[FileTimes], cutoff: int, unit: Unit, most: int) -> Cut:
    """Cut where no file lies on both sides, as near to a cutoff as the files allow.

    :param files: those with rows before the cutoff are looked at.
    :param unit: what a partition is.
    :param most: partitions that may go, the oldest first; one more if that is what it takes to part the files at all.
    :return: the mixed files are those that lie across the cutoff, or that nothing parts from such.
    """
    groups = _groups(file for file in files if file.first < cutoff)
    taken: list[FileTimes] = []
    units: set[int] = set()
    for number, group in enumerate(groups):
        more = units | _units(group, unit)
        full = bool(taken) and len(more) > most
        if full or max(file.last for file in group) >= cutoff:
            rest = [file for later in groups[number:] for file in later]
            left = _units(rest, unit) - units if full else ()
            below = _between(taken, group[0], unit) if taken else None
            return Cut(below, tuple(taken), () if full else tuple(rest), len(units), len(left))
        taken += group
        units = more
    return Cut(cutoff if taken else None, tuple(taken), (), len(units), 0)


def through_files(files: Collection[FileTimes], cutoff: int, unit: Unit, most: int) -> Cut:
    """Cut at a cutoff, or as many partitions further back as may not go in one run; files may lie on both sides.

    :param most: partitions that may go, the oldest first.
    """
    found = [file for file in files if file.first < cutoff]
    units = sorted(_units(found, unit))
    below = units[most] if len(units) > most else cutoff
    found = [file for file in found if file.first < below]
    whole = tuple(file for file in found if file.last < below)
    mixed = tuple(file for file in found if file.last >= below)
    return Cut(below if found else None, whole, mixed, len(units[:most]), len(units[most:]))


def _between(before: Iterable[FileTimes], after: FileTimes, unit: Unit) -> int:
    """A time between files and the next one, if possible one at which a partition begins."""
    assert after.lower is not None
    begin = unit_of(after.lower, unit)
    return begin if begin > max(file.last for file in before) else after.lower


def _units(files: Iterable[FileTimes], unit: Unit) -> set[int]:
    return {unit_of(file.lower, unit) for file in files if file.lower is not None}


def unit_of(time: int, unit: Unit) -> int:
    """The beginning of the hour, day, month or year that a time is in."""
    moment = moment_of(time).replace(minute=0, second=0, microsecond=0)
    if unit != "hour":
        moment = moment.replace(hour=0)
    if unit in ("month", "year"):
        moment = moment.replace(day=1)
    return time_of(moment.replace(month=1) if unit == "year" else moment)


def moment_of(time: int) -> datetime:
    """A time as Python has it; one before the year 1 or after 9999 is the nearest that Python has."""
    try:
        return _EPOCH + timedelta(microseconds=time)
    except OverflowError:
        return (datetime.min if time < 0 else datetime.max).replace(tzinfo=UTC)


def time_of(moment: datetime) -> int:
    """Microseconds since 1970 of a moment with a zone."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _groups(files: Iterable[FileTimes]) -> list[list[FileTimes]]:
    """Files in order of time, those together that nothing parts."""
    groups: list[list[FileTimes]] = []
    end = -math.inf
    for file in sorted(files, key=lambda file: file.first):
        if groups and file.first <= end:
            groups[-1].append(file)
        else:
            groups.append([file])
        end = max(end, file.last)
    return groups
