"""How much data files overlap in their first sort column: overlap depth and the groups that overlap."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KeyRange:
    """Where a data file lies in the order of a column.

    :param lower: lowest value; None with ``upper`` None means that the bounds are unknown and the file may hold any.
    :param rows: rows in the file.
    """

    lower: Any
    upper: Any
    rows: int

    @property
    def known(self) -> bool:
        """Whether the file has bounds."""
        return self.lower is not None and self.upper is not None


def overlap_depth(ranges: Sequence[KeyRange]) -> float:
    """Average number of files that may hold a row's key, 1 if the files do not overlap.

    The ends of the ranges cut the order into pieces; a file's rows are taken to be spread evenly over the pieces it
    covers, because only the order of keys is known, not their distance. Ends that files merely share do not count:
    neighbours of a sorted table often do. (After the overlap depth of apache/iceberg #17504, weighted by rows.)

    :param ranges: the data files of one partition.
    """
    known = [r for r in ranges if r.known]
    everywhere = len(ranges) - len(known)
    ends = sorted({end for r in known for end in (r.lower, r.upper)})
    pieces = max(len(ends) - 1, 0)
    depth, spread = [everywhere] * pieces, [0.0] * pieces
    for r, first, last in _covered(known, ends):
        for piece in range(first, last):
            depth[piece] += 1
            spread[piece] += r.rows / (last - first)
    rows = sum(spread)
    if not rows:
        return float(max(everywhere, 1))
    covered = sum(d * weight for d, weight in zip(depth, spread, strict=True)) / rows
    unknown = sum(r.rows for r in ranges if not r.known)
    # a row of a file without bounds may have its key in any file
    return (covered * rows + len(ranges) * unknown) / (rows + unknown)


def overlapping_groups(ranges: Sequence[KeyRange]) -> list[list[int]]:
    """Indexes of files that overlap each other directly or through others; files that stand alone are left out.

    :param ranges: the data files of one partition.
    """
    everything = list(range(len(ranges)))
    if any(not r.known for r in ranges):
        return [everything] if len(ranges) > 1 else []
    groups: list[list[int]] = []
    reach: Any = None
    for index in sorted(everything, key=lambda i: (ranges[i].lower, ranges[i].upper)):
        if groups and ranges[index].lower < reach:
            groups[-1].append(index)
            reach = max(reach, ranges[index].upper)
        else:
            groups.append([index])
            reach = ranges[index].upper
    return [group for group in groups if len(group) > 1]


def runs_between(chosen: Sequence[KeyRange], others: Sequence[KeyRange]) -> list[list[int]]:
    """Cut files that are to be joined wherever other files hold keys that none of them holds.

    The files that come of one run, disjoint among each other, then lie over no key of another file that was clear of
    the run before, so that joining them never deepens the overlap.

    :param chosen: files to be joined.
    :param others: the other files of the partition.
    :return: indexes of the files of each run, by lowest value.
    """
    # a file without bounds may hold any key: there is no gap beside it
    if any(not r.known for r in chosen):
        return [list(range(len(chosen)))]
    held = [r for r in others if r.known]
    runs: list[list[int]] = []
    reach: Any = None
    for index in sorted(range(len(chosen)), key=lambda i: (chosen[i].lower, chosen[i].upper)):
        lower, upper = chosen[index].lower, chosen[index].upper
        if not runs or (reach < lower and any(r.lower < lower and r.upper > reach for r in held)):
            runs.append([index])
            reach = upper
        else:
            runs[-1].append(index)
            reach = max(reach, upper)
    return runs


def _covered(ranges: Sequence[KeyRange], ends: Sequence[Any]) -> list[tuple[KeyRange, int, int]]:
    """The pieces a range covers, as half-open numbers; a range of one value covers none."""
    found = []
    for r in ranges:
        first, last = bisect.bisect_left(ends, r.lower), bisect.bisect_left(ends, r.upper)
        if last > first:
            found.append((r, first, last))
    return found
