"""Which data files are worth rewriting together, from measured facts alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lakecdc.contract.options import CompactDataFilesOptions
from lakecdc.maintain.measure import FileFacts, Partitions
from lakecdc.maintain.overlap import overlap_depth, overlapping_groups
from lakecdc.metadata.health import SMALL_FILE_RATIO

#: an average output file is at least this much above the size that would make it small again
_MARGIN = 1.05


@dataclass(frozen=True)
class Unit:
    """Data files of one partition that are rewritten into one set of files.

    :param outputs: files to write.
    """

    files: tuple[FileFacts, ...]
    outputs: int

    @property
    def bytes(self) -> int:
        """Bytes to read."""
        return sum(file.bytes for file in self.files)


def output_count(live_bytes: float, target: int, small_file_ratio: float) -> int:
    """How many files to write so that each is near the target and none counts as small again.

    :param live_bytes: estimated bytes of data to write.
    :param target: bytes per file aimed at.
    :param small_file_ratio: share of the target below which a file is small.
    """
    nearest = math.floor(live_bytes / target + 0.5)
    without_small = math.floor(live_bytes / (target * max(small_file_ratio, SMALL_FILE_RATIO) * _MARGIN))
    return max(1, min(nearest, without_small))


def compaction_units(
    partitions: Partitions, options: CompactDataFilesOptions, target: int
) -> tuple[list[Unit], dict[str, Any]]:
    """Choose what to compact: partitions with many small files, with enough of them to fill one, or dirty files.

    :param partitions: facts of all live data files.
    :param target: bytes per file aimed at.
    :return: units, and counts for the report.
    """
    units: list[Unit] = []
    counts = {"partitions_examined": len(partitions), "small_files": 0, "dirty_files": 0}
    for files in partitions.values():
        dirty = {f.location for f in files if f.deleted and f.delete_ratio >= options.delete_ratio}
        small = {f.location for f in files if f.bytes < target * options.small_file_ratio}
        counts["small_files"] += len(small)
        counts["dirty_files"] += len(dirty)
        wanted = dirty | small if _worth_packing(files, dirty, small, options, target) else dirty
        chosen = sorted((f for f in files if f.location in wanted), key=_position)
        for part in _cut(chosen, options.max_group_bytes):
            outputs = output_count(sum(f.live_bytes for f in part), target, options.small_file_ratio)
            if outputs < len(part) or any(f.location in dirty for f in part):
                units.append(Unit(tuple(part), outputs))
    return units, counts


def apart(partitions: Partitions, specs: Collection[int]) -> tuple[Partitions, Partitions]:
    """Partitions that are not of some specs, and those that are."""
    of_specs = {key: files for key, files in partitions.items() if key[0] in specs}
    return {key: files for key, files in partitions.items() if key not in of_specs}, of_specs


def moving_units(partitions: Partitions, options: CompactDataFilesOptions, target: int) -> tuple[list[Unit], int]:
    """All files of each spec together, to be rewritten whatever their size.

    Iceberg would enter the rest of a manifest anew, without partition values, if some of its files went.

    :param partitions: those of specs whose column was dropped.
    :param target: bytes per file aimed at.
    :return: a unit for each spec, and how many files are left because those of their spec are too many for a commit.
    """
    units: list[Unit] = []
    left = 0
    for spec_id in dict.fromkeys(spec_id for spec_id, _ in partitions):
        files = [file for (spec, _), found in partitions.items() if spec == spec_id for file in found]
        unit = Unit(tuple(files), output_count(sum(f.live_bytes for f in files), target, options.small_file_ratio))
        if unit.bytes <= options.max_group_bytes:
            units.append(unit)
        else:
            left += len(files)
    return units, left


def sort_units(
    partitions: Partitions, min_depth: float, target: int, sorted_by: Iterable[int] = ()
) -> tuple[list[Unit], dict[str, Any]]:
    """Choose what to sort: in partitions whose files overlap too much, the files that overlap.

    :param partitions: facts with the bounds of the first sort column.
    :param min_depth: overlap depth above which a partition is sorted.
    :param sorted_by: snapshots that sorted by this very order; files that one of them wrote together need no second
        sort even if their bounds, truncated or missing, look as if they overlapped.
    :return: units, and counts for the report.
    """
    known, units, depths, chosen = set(sorted_by), [], [], 0
    for everything in partitions.values():
        files = [f for f in everything if not f.keyless]
        depth = overlap_depth([f.key_range for f in files])
        depths.append((depth, sum(f.rows for f in files)))
        found = [[files[i] for i in group] for group in overlapping_groups([f.key_range for f in files])]
        groups = [group for group in found if not _sorted_together(group, known)]
        if depth <= min_depth or not groups:
            continue
        chosen += 1
        for group in groups:
            outputs = output_count(sum(f.live_bytes for f in group), target, SMALL_FILE_RATIO)
            units.append(Unit(tuple(group), outputs))
    counts = {
        "partitions_examined": len(partitions),
        "partitions_chosen": chosen,
        "overlap_depth_before": average_depth(depths),
    }
    return units, counts


def average_depth(depths: Sequence[tuple[float, int]]) -> float:
    """Overlap depth of a table from depth and rows of its partitions."""
    rows = sum(weight for _, weight in depths)
    return round(sum(depth * weight for depth, weight in depths) / rows, 2) if rows else 1.0


def batches(units: Sequence[Unit], max_bytes: int) -> list[list[Unit]]:
    """Put units together for one commit each; a unit above the limit stands alone.

    :param max_bytes: bytes to read per commit.
    """
    found: list[list[Unit]] = []
    size = 0
    for unit in units:
        if not found or size + unit.bytes > max_bytes:
            found.append([])
            size = 0
        found[-1].append(unit)
        size += unit.bytes
    return found


def _worth_packing(
    files: Sequence[FileFacts], dirty: set[str], small: set[str], options: CompactDataFilesOptions, target: int
) -> bool:
    """Tell whether the small files are many enough, or enough for a full file.

    What is left of dirty files may be small too and is counted as it will be, or the next run would find it.
    """
    sizes = [f.live_bytes for f in files if f.location in small - dirty]
    left = sum(f.live_bytes for f in files if f.location in dirty)
    if left:
        outputs = output_count(left, target, options.small_file_ratio)
        if left / outputs < target * options.small_file_ratio:
            sizes += [left / outputs] * outputs
    if len(small) >= options.min_input_files or len(sizes) >= options.min_input_files:
        return True
    return len(sizes) > 1 and sum(sizes) >= target


def _cut(files: Sequence[FileFacts], max_bytes: int) -> list[list[FileFacts]]:
    parts: list[list[FileFacts]] = []
    size = 0
    for file in files:
        if not parts or size + file.bytes > max_bytes:
            parts.append([])
            size = 0
        parts[-1].append(file)
        size += file.bytes
    return parts


def _position(file: FileFacts) -> tuple[Any, ...]:
    """Neighbours in the sort order stay together; files without bounds come first."""
    return (0, file.location) if file.lower is None else (1, file.lower, file.location)


def _sorted_together(group: Sequence[FileFacts], known: set[int]) -> bool:
    makers = {file.added_by for file in group}
    return len(makers) == 1 and makers <= known
