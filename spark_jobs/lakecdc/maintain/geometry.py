"""Compute the relative positions of a partition's data files, in a linear order or on a space-filling curve."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from lakecdc.contract.rewriting import SpaceFillingCurve
from lakecdc.iceberg.sort_order import SortOrder
from lakecdc.metadata.file_facts import FileFacts, Partitions, average_depth, keyed_rows, linear_depth
from lakecdc.metadata.overlap import (
    Box,
    KeyRange,
    box_depth,
    boxes_joined,
    hull,
    overlap_depth,
    overlapping_groups,
    runs_between,
    touches,
)

Files = Sequence[FileFacts]


class Linear:
    """Files of a partition as ranges of one order; files without a key have no position."""

    def depth(self, files: Files) -> float:
        """Return the overlap depth of a partition, 1 at best."""
        return linear_depth(files)

    def overlapping(self, files: Files, known: Collection[int]) -> list[list[FileFacts]]:
        """Group files to sort together, except files that one of the ``known`` snapshots sorted."""
        keyed = [f for f in files if not f.keyless]
        groups = [[keyed[i] for i in group] for group in overlapping_groups([f.key_range for f in keyed])]
        return [group for group in groups if not _sorted_together(group, known)]

    def ordered(self, files: Files) -> list[FileFacts]:
        """Sort files so that neighbours are adjacent; files without bounds come first."""
        return sorted(files, key=position)

    def runs(self, chosen: Files, files: Files, outputs: Callable[[Files], int]) -> list[list[FileFacts]]:
        """Cut files into runs whose merge does not deepen any overlap.

        :param files: all files of the partition.
        :param outputs: returns the number of output files of a run.
        """
        joined = {f.location for f in chosen}
        # rows without a key separate no keys
        keyed, keyless = [f for f in chosen if not f.keyless], [f for f in chosen if f.keyless]
        others = [f.key_range for f in files if not f.keyless and f.location not in joined]
        first, *rest = runs_between([f.key_range for f in keyed], others) or [[]]
        return [keyless + [keyed[i] for i in first], *([keyed[i] for i in run] for run in rest)]

    def lying_over(self, chosen: Files, files: Files, enough: int) -> list[FileFacts]:
        """Return the files that lie across ``enough`` separate runs, and so would keep these from being merged."""
        runs = [[f for f in run if not f.keyless] for run in self.runs(chosen, files, len)]
        if len(runs) < max(enough, 2):
            return []
        # in order, and disjoint
        lows, highs = [min(f.lower for f in run) for run in runs], [max(f.upper for f in run) for run in runs]
        joined = {f.location for f in chosen}
        over = [f for f in files if f.key_range.known and f.location not in joined]
        return [
            f for f in over if bisect.bisect_right(highs, f.upper) - bisect.bisect_left(lows, f.lower) >= max(enough, 2)
        ]


@dataclass(frozen=True)
class OnCurve(Linear):
    """Files as boxes in the space of the sort columns."""

    curve: SpaceFillingCurve

    def depth(self, files: Files) -> float:
        return box_depth([f.box for f in files if not f.keyless])

    def overlapping(self, files: Files, known: Collection[int]) -> list[list[FileFacts]]:
        # files never sorted by the curve are sorted together, with those whose boxes touch theirs: disjoint boxes may
        # still all contain the same values of a column
        keyed = [f for f in files if not f.keyless]
        groups = [[keyed[i] for i in group] for group in boxes_joined([f.box for f in keyed])]
        fresh: list[FileFacts] = []
        candidates = [fresh]
        for group in groups:
            if any(f.added_by not in known for f in group):
                fresh += group
            else:
                candidates.append(group)
        return [group for group in candidates if len(group) > 1 and not _sorted_together(group, known)]

    def ordered(self, files: Files) -> list[FileFacts]:
        from lakecdc.maintain.curves import place_on, rank_bits

        known = [f for f in files if f.box and all(r.known for r in f.box)]
        if not known:
            return sorted(files, key=lambda f: f.location)
        bits = rank_bits(len(known[0].box))
        ranks = [_centres([f.box[n] for f in known], bits) for n in range(len(known[0].box))]
        places = dict(zip((f.location for f in known), place_on(self.curve, ranks, bits).tolist(), strict=True))  # type: ignore[arg-type]
        return sorted(files, key=lambda f: (places.get(f.location, -1), f.location))

    def runs(self, chosen: Files, files: Files, outputs: Callable[[Files], int]) -> list[list[FileFacts]]:
        keyless, keyed = [f for f in chosen if f.keyless], self.ordered([f for f in chosen if not f.keyless])
        if not keyed:
            return [keyless]
        space = _Space({f.location: f.box for f in files if not f.keyless})
        if space.take(keyed, outputs(keyed)):
            return [keyless + keyed]
        runs: list[list[FileFacts]] = []
        for run in _connected(keyed):
            runs += [run] if space.take(run, outputs(run)) else [[f] for f in run]
        first, *rest = runs
        return [keyless + first, *rest]

    def lying_over(self, chosen: Files, files: Files, enough: int) -> list[FileFacts]:
        # on a curve, files between boxes do not matter
        return []


def geometry(order: SortOrder) -> Linear:
    return Linear() if order.curve == "linear" else OnCurve(order.curve)


def average_overlap(partitions: Partitions, order: SortOrder) -> float:
    """Return the overlap depth of partitions, weighted by their rows with a key."""
    shape = geometry(order)
    return average_depth([(shape.depth(files), keyed_rows(files)) for files in partitions.values()])


def position(file: FileFacts) -> tuple[Any, ...]:
    """Return a sort key that keeps neighbours in a linear order together; files without bounds come first."""
    return (0, file.location) if file.lower is None else (1, file.lower, file.location)


def _sorted_together(group: Files, known: Collection[int]) -> bool:
    makers = {file.added_by for file in group}
    return len(makers) == 1 and makers <= set(known)


def _centres(ranges: Sequence[KeyRange], bits: int) -> list[int]:
    ends = sorted({end for r in ranges for end in (r.lower, r.upper)})
    top = (1 << bits) - 1
    middles = [bisect.bisect_left(ends, r.lower) + bisect.bisect_left(ends, r.upper) for r in ranges]
    return [middle * top // max(2 * len(ends) - 2, 1) for middle in middles]


def _connected(files: Files) -> list[list[FileFacts]]:
    """Cut files wherever the next one leaves a gap to the previous ones in a column."""
    runs: list[list[FileFacts]] = []
    around: Box = ()
    for file in files:
        if runs and touches(around, file.box):
            runs[-1].append(file)
            around = hull([around, file.box])
        else:
            runs.append([file])
            around = file.box
    return runs


class _Space:
    """Boxes of a partition's files, by location, while some are being merged."""

    def __init__(self, boxes: dict[str, Box]) -> None:
        self._boxes, self._depths = boxes, _depths(boxes.values())

    def take(self, run: Files, outputs: int) -> bool:
        """Merge files, unless a column's overlap gets deeper with ``outputs`` new files that span their whole space."""
        if len(run) == 1:
            return True
        around = tuple(KeyRange(r.lower, r.upper, r.rows // outputs) for r in hull([f.box for f in run]))
        merged = {f.location for f in run}
        boxes = {location: box for location, box in self._boxes.items() if location not in merged}
        boxes |= {f"{run[0].location} {n}": around for n in range(outputs)}
        depths = _depths(boxes.values())
        if any(new > old for new, old in zip(depths, self._depths, strict=True)):
            return False
        self._boxes, self._depths = boxes, depths
        return True


def _depths(boxes: Collection[Box]) -> list[float]:
    return [overlap_depth(ranges) for ranges in zip(*boxes, strict=True)]
