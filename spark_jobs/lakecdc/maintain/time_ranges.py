"""Separation of data files by time: which lie entirely before a time, and where the table can be cut."""

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
    """Time range of a data file; times are microseconds since 1970, UTC.

    :param lower: of its oldest row; None if it is not recorded.
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
        """Return the earliest possible time of its oldest row."""
        return -math.inf if self.lower is None else self.lower

    @property
    def last(self) -> float:
        """Return the latest possible time of a row to keep; a row without a time always stays."""
        return math.inf if self.upper is None or self.nulls else self.upper


@dataclass(frozen=True)
class Cut:
    """A cut of a table in time.

    :param below: all rows before this time are removed; None if none are.
    :param whole: files removed with them.
    :param mixed: files with rows on both sides.
    :param partitions: number of time units that lose rows.
    :param left: number of time units before the cutoff that are left to later runs.
    """

    below: int | None
    whole: tuple[FileTimes, ...]
    mixed: tuple[FileTimes, ...]
    partitions: int
    left: int


def between_files(files: Iterable[FileTimes], cutoff: int, unit: Unit, most: int) -> Cut:
    """Cut as near to a cutoff as possible without a file on both sides.

    :param files: only those with rows before the cutoff count.
    :param unit: of a partition.
    :param most: maximum number of partitions to remove, oldest first; one more if the files cannot be separated
        otherwise.
    :return: its mixed files lie across the cutoff, or cannot be separated from such files.
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
    """Cut at a cutoff, or further back by the partitions above the limit of one run; files may lie on both sides.

    :param most: maximum number of partitions to remove, oldest first.
    """
    older = [file for file in files if file.first < cutoff]
    units = sorted(_units(older, unit))
    below = units[most] if len(units) > most else cutoff
    older = [file for file in older if file.first < below]
    whole = tuple(file for file in older if file.last < below)
    mixed = tuple(file for file in older if file.last >= below)
    return Cut(below if older else None, whole, mixed, len(units[:most]), len(units[most:]))


def _between(before: Iterable[FileTimes], after: FileTimes, unit: Unit) -> int:
    """Return a time between files and the next one, preferably the beginning of a partition."""
    assert after.lower is not None
    begin = unit_of(after.lower, unit)
    return begin if begin > max(file.last for file in before) else after.lower


def _units(files: Iterable[FileTimes], unit: Unit) -> set[int]:
    return {unit_of(file.lower, unit) for file in files if file.lower is not None}


def unit_of(time: int, unit: Unit) -> int:
    """Return the beginning of the hour, day, month or year of a time."""
    moment = moment_of(time).replace(minute=0, second=0, microsecond=0)
    if unit != "hour":
        moment = moment.replace(hour=0)
    if unit in ("month", "year"):
        moment = moment.replace(day=1)
    return time_of(moment.replace(month=1) if unit == "year" else moment)


def moment_of(time: int) -> datetime:
    """Convert a time to a Python datetime, clamped to the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=time)
    except OverflowError:
        return (datetime.min if time < 0 else datetime.max).replace(tzinfo=UTC)


def time_of(moment: datetime) -> int:
    """Convert a datetime with a zone to microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _groups(files: Iterable[FileTimes]) -> list[list[FileTimes]]:
    """Sort files by time, and group those that cannot be separated."""
    groups: list[list[FileTimes]] = []
    end = -math.inf
    for file in sorted(files, key=lambda file: file.first):
        if groups and file.first <= end:
            groups[-1].append(file)
        else:
            groups.append([file])
        end = max(end, file.last)
    return groups
