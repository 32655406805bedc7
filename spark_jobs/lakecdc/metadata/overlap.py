"""Overlap of data files, as ranges of an order or as boxes: overlap depth and overlapping groups."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# first elements of the parts of an end; Python compares the values after them only where these are equal
_BELOW_ALL, _NULL, _VALUE, _ABOVE_ALL = (-2,), (-1,), 0, (2,)


@dataclass(frozen=True)
class ColumnBounds:
    """The bounds of one column in one data file.

    :param lower: lowest value, None if unknown.
    :param upper: highest value, possibly truncated upwards.
    :param only_nulls: whether the column is null in every row.
    :param complete: whether no row lies outside the bounds, as nulls do.
    """

    lower: Any = None
    upper: Any = None
    only_nulls: bool = False
    complete: bool = False

    @property
    def known(self) -> bool:
        """Check whether the file has bounds of the column."""
        return self.lower is not None and self.upper is not None


@dataclass(frozen=True)
class KeyRange:
    """Range of a data file in an order; ends that are None are unknown, so that the file may contain any key."""

    lower: Any
    upper: Any
    rows: int

    @property
    def known(self) -> bool:
        """Check whether the file has bounds."""
        return self.lower is not None and self.upper is not None


#: range of a data file in each of several columns
Box = tuple[KeyRange, ...]


def lexicographic_ends(columns: Sequence[ColumnBounds]) -> tuple[Any, Any]:
    """Return the ends of a data file in the order of several columns, as far as the bounds allow.

    A column counts where all columns before it have a single value in the file. After the first with several values,
    nothing is known about the rows at either end: neighbours of a sorted table share such a value, so the file is
    assumed to begin after everything else with its lowest value, and to end before everything else with its highest.

    :param columns: bounds of the sort columns, most significant first.
    :return: both ends, comparable with those of other files; None and None if nothing is known.
    """
    prefix: list[Any] = []
    for column in columns:
        if column.only_nulls:
            prefix.append(_NULL)
        elif not column.known:
            break
        elif column.lower == column.upper:
            prefix.append((_VALUE, column.lower))
        else:
            lower = (*prefix, (_VALUE, column.lower), _ABOVE_ALL)
            return lower, (*prefix, (_VALUE, column.upper), _BELOW_ALL)
    return (tuple(prefix), tuple(prefix)) if prefix else (None, None)


def lies_behind(upper: Any, lower: Any) -> bool:
    """Check whether all rows of a file come after those of another, beyond the shared ends of neighbours.

    ``upper`` is the end of the other file, ``lower`` the beginning of this one, by :func:`lexicographic_ends`.
    """
    for left, right in zip(upper, lower, strict=False):
        if left == _BELOW_ALL or right == _ABOVE_ALL:
            return False
        if left != right:
            return bool(left < right)
    return False


def column_range(column: ColumnBounds, rows: int) -> KeyRange:
    """Return the range of a data file in one column; nulls are below all values."""
    if column.only_nulls:
        return KeyRange(_NULL, _NULL, rows)
    return (
        KeyRange((_VALUE, column.lower), (_VALUE, column.upper), rows) if column.known else KeyRange(None, None, rows)
    )


def overlap_depth(ranges: Sequence[KeyRange]) -> float:
    """Return the average number of files that may contain a row's key, 1 if the files do not overlap.

    The ends of the ranges cut the order into pieces; a file's rows are assumed to be spread evenly over its pieces,
    because only the order of keys is known, not their distance. Ends that files merely share do not count, because
    neighbours of a sorted table often share them. (After the overlap depth of apache/iceberg #17504, weighted by rows.)
    """
    known = [r for r in ranges if r.known]
    everywhere = len(ranges) - len(known)
    ends = sorted({end for r in known for end in (r.lower, r.upper)})
    # the pieces of each range, as half-open numbers; a range of one value has none
    pieces = [(r, bisect.bisect_left(ends, r.lower), bisect.bisect_left(ends, r.upper)) for r in known]
    covered = [(r, first, last) for r, first, last in pieces if last > first]
    rows = sum(r.rows for r, _, _ in covered)
    if not rows:
        return float(max(everywhere, 1))
    changes = [0] * len(ends)
    for _, first, last in covered:
        changes[first] += 1
        changes[last] -= 1
    # depth of each piece, then sums of them up to each end
    sums = list(itertools.accumulate(itertools.accumulate(changes), initial=0))
    total = sum(r.rows * ((sums[last] - sums[first]) / (last - first) + everywhere) for r, first, last in covered)
    unknown = sum(r.rows for r in ranges if not r.known)
    # a row of a file without bounds may have its key in any file
    return (total + len(ranges) * unknown) / (rows + unknown)


def overlapping_groups(ranges: Sequence[KeyRange]) -> list[list[int]]:
    """Group the indexes of files that overlap directly or through others; omit files without overlap."""
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
    """Cut files to be merged wherever other files of the partition have keys between them.

    The disjoint output files of one run then overlap no key of another file that was clear of the run before, so the
    merge never deepens the overlap.

    :return: indexes of the files of each run, by lowest value.
    """
    # a file without bounds may contain any key, so there is no gap
    if any(not r.known for r in chosen):
        return [list(range(len(chosen)))]
    pending = sorted((r for r in others if r.known), key=lambda r: r.lower, reverse=True)
    runs: list[list[int]] = []
    reach: Any = None
    covered_up_to: Any = None
    for index in sorted(range(len(chosen)), key=lambda i: (chosen[i].lower, chosen[i].upper)):
        lower, upper = chosen[index].lower, chosen[index].upper
        while pending and pending[-1].lower < lower:
            other = pending.pop()
            covered_up_to = other.upper if covered_up_to is None else max(covered_up_to, other.upper)
        if not runs or (reach < lower and covered_up_to is not None and covered_up_to > reach):
            runs.append([index])
            reach = upper
        else:
            runs[-1].append(index)
            reach = max(reach, upper)
    return runs


def box_depth(boxes: Sequence[Box]) -> float:
    """Return the overlap depth of files on a curve, relative to the best possible.

    The average number of files that may contain a row's value (:func:`overlap_depth`) is averaged over the columns and
    divided by that of a grid: with n files in d columns any value of a column is in at least n^(1-1/d) files if all
    columns are served alike. So 1 is the best for a curve, as for a linear order, and files in random order have
    n^(1/d).
    """
    columns = len(boxes[0]) if boxes else 0
    if not columns:
        return 1.0
    average = sum(overlap_depth([box[n] for box in boxes]) for n in range(columns)) / columns
    return max(1.0, average / len(boxes) ** (1 - 1 / columns))


def boxes_joined(boxes: Sequence[Box]) -> list[list[int]]:
    """Group the indexes of files whose boxes overlap in all columns, directly or through others; keep single ones."""
    everything = list(range(len(boxes)))
    if any(not r.known for box in boxes for r in box):
        return [everything]
    done: list[list[int]] = []
    open_groups: list[tuple[Box, list[int]]] = []
    for index in sorted(everything, key=lambda i: (boxes[i][0].lower, boxes[i][0].upper)):
        around, members = boxes[index], [index]
        done += [group for box, group in open_groups if box[0].upper < around[0].lower]
        open_groups = [(box, group) for box, group in open_groups if not box[0].upper < around[0].lower]
        # a growing box may overlap more boxes
        while meeting := [(box, group) for box, group in open_groups if _meet(box, around)]:
            open_groups = [(box, group) for box, group in open_groups if not _meet(box, around)]
            around = hull([around, *(box for box, _ in meeting)])
            members = [*itertools.chain.from_iterable(group for _, group in meeting), *members]
        open_groups.append((around, members))
    return done + [group for _, group in open_groups]


def hull(boxes: Sequence[Box]) -> Box:
    """Return the smallest box around others; unknown where one of them is."""
    return tuple(
        KeyRange(min(r.lower for r in ranges), max(r.upper for r in ranges), sum(r.rows for r in ranges))
        if all(r.known for r in ranges)
        else KeyRange(None, None, sum(r.rows for r in ranges))
        for ranges in zip(*boxes, strict=True)
    )


def touches(left: Box, right: Box) -> bool:
    """Check whether two boxes have no gap between them in any column."""
    return all(
        not (a.known and b.known) or (a.lower <= b.upper and b.lower <= a.upper)
        for a, b in zip(left, right, strict=True)
    )


def _meet(left: Box, right: Box) -> bool:
    """Check whether boxes share more than the common ends of neighbours."""
    shared = [(max(a.lower, b.lower), min(a.upper, b.upper)) for a, b in zip(left, right, strict=True)]
    points = [a.lower == a.upper or b.lower == b.upper for a, b in zip(left, right, strict=True)]
    return any(low < high for low, high in shared) and all(
        low < high or (point and low == high) for (low, high), point in zip(shared, points, strict=True)
    )
