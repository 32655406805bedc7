"""Choose data files that are worth rewriting together, from measured facts alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

from lakecdc.contract.rewriting import CompactDataFilesOptions, SortDataFilesOptions
from lakecdc.maintain.geometry import Linear
from lakecdc.metadata.compaction_reasons import Reasons, reasons
from lakecdc.metadata.file_facts import FileFacts, Partitions, average_depth, keyed_rows, warm_files
from lakecdc.metadata.file_sizes import cut, output_count
from lakecdc.metadata.overlap import lies_behind
from lakecdc.metadata.totals import SMALL_FILE_RATIO

T = TypeVar("T")
_LINEAR = Linear()
_MOST_SEQUENCES = 50


@dataclass(frozen=True)
class Unit:
    """Data files, usually of one partition, that are rewritten into ``outputs`` files.

    :param pieces: number of parts that rows are first distributed to, each with its share of the outputs.
    :param piece: integer as Spark SQL; its remainder by ``pieces`` is a row's part.
    :param in_sequence: reading the files one after the other yields sorted rows.
    """

    files: tuple[FileFacts, ...]
    outputs: int
    pieces: int = 1
    piece: str | None = None
    in_sequence: bool = False

    @property
    def bytes(self) -> int:
        """Return the bytes to read."""
        return sum(file.bytes for file in self.files)


def _outputs(files: Sequence[FileFacts], target: int, small_file_ratio: float) -> int:
    return output_count(sum(f.live_bytes for f in files), target, small_file_ratio)


def compaction_units(
    partitions: Partitions,
    options: CompactDataFilesOptions,
    target: int,
    large: float = math.inf,
    geometry: Linear = _LINEAR,
    unfiltered: Collection[str] = (),
) -> tuple[list[Unit], dict[str, Any]]:
    """Choose the units to compact, longest unchanged partitions first, and count them for the report.

    These are partitions with many small files or enough of them to fill one, and single files to split or with many
    deleted rows. No unit's new files overlap keys of files that were disjoint from it before.

    :param large: larger files are split; bytes.
    :param unfiltered: locations of files to rewrite because they lack Bloom filters.
    """
    units: list[Unit] = []
    outputs = partial(_outputs, target=target, small_file_ratio=options.small_file_ratio)
    all_reasons: list[Reasons] = []
    for files in sorted(partitions.values(), key=newest_sequence):
        why = reasons(files, options, target, large, unfiltered)
        all_reasons.append(why)
        chosen = why.worth_rewriting(files)
        chosen += warm_files(geometry.lying_over(chosen, files, options.min_input_files))
        for part in cut_files(geometry.ordered(chosen), options.max_group_bytes):
            for run in geometry.runs(part, files, outputs):
                if outputs(run) < len(run) or any(f.location in why.alone for f in run):
                    units.append(Unit(tuple(run), outputs(run)))
    return units, {"partitions_examined": len(partitions), **Reasons.counts(all_reasons)}


def newest_sequence(files: Sequence[FileFacts]) -> int:
    """Return the highest data sequence number of a partition's files."""
    return max((f.sequence for f in files), default=0)


def still_written(partitions: Partitions, quiet_since: int) -> set[tuple[int, str]]:
    """Return the partitions with files of commits after a sequence number."""
    return {key for key, files in partitions.items() if newest_sequence(files) > quiet_since}


def apart(partitions: Partitions, specs: Collection[int]) -> tuple[Partitions, Partitions]:
    """Split partitions into those of other specs and those of the given specs."""
    of_specs = {key: files for key, files in partitions.items() if key[0] in specs}
    return {key: files for key, files in partitions.items() if key not in of_specs}, of_specs


def moving_units(partitions: Partitions, options: CompactDataFilesOptions, target: int) -> tuple[list[Unit], int]:
    """Group all files of each spec with a dropped column, to rewrite them at any size.

    If only some files of a manifest were removed, Iceberg would rewrite the other entries without partition values.

    :return: a unit for each spec, and the number of files left because their spec is too large for one commit.
    """
    units: list[Unit] = []
    left = 0
    for spec_id in dict.fromkeys(spec_id for spec_id, _ in partitions):
        files = [file for (spec, _), of_partition in partitions.items() if spec == spec_id for file in of_partition]
        unit = Unit(tuple(files), _outputs(files, target, options.small_file_ratio))
        if unit.bytes <= options.max_group_bytes:
            units.append(unit)
        else:
            left += len(files)
    return units, left


def sort_units(
    partitions: Partitions,
    options: SortDataFilesOptions,
    target: int,
    sorted_by: Iterable[int] = (),
    geometry: Linear = _LINEAR,
) -> tuple[list[Unit], dict[str, Any]]:
    """Choose the units to sort, and count them for the report: warm files of partitions that overlap too much.

    Overlapping files that are too many for one commit are cut into pieces of neighbours. If all overlap, sorting the
    pieces leaves as many layers of disjoint files as there are pieces; the next pieces are narrow, and sorting them
    leaves little overlap.

    :param sorted_by: snapshots sorted by this order; their files need no second sort even if truncated or missing
        bounds seem to overlap.
    """
    known, units, depths, chosen, pieces = set(sorted_by), [], [], 0, 0
    for files in map(warm_files, partitions.values()):
        depth = geometry.depth(files)
        depths.append((depth, keyed_rows(files)))
        groups = geometry.overlapping(files, known) if depth > options.min_overlap_depth else []
        chosen += bool(groups)
        for group in groups:
            parts = cut_files(geometry.ordered(group), options.max_group_bytes)
            pieces += len(parts) - 1
            units += [Unit(tuple(piece), _outputs(piece, target, SMALL_FILE_RATIO)) for piece in parts]
    counts = {
        "partitions_examined": len(partitions),
        "partitions_chosen": chosen,
        "groups_cut": pieces,
        "overlap_depth_before": average_depth(depths),
    }
    return units, counts


def sequences(units: Sequence[Unit], sorted_in: Collection[int], spec_id: int) -> list[Unit]:
    """Cut units whose files only have to be concatenated in ascending order; return other units unchanged.

    :param sorted_in: snapshots whose files have rows sorted by the order.
    :param spec_id: the current partition spec; rows of files of other specs go to several partitions.
    """
    cut_units: list[Unit] = []
    for unit in units:
        apt = [f for f in unit.files if f.bounded and f.added_by in sorted_in and f.spec_id == spec_id]
        files = sorted(apt, key=lambda f: f.lower)
        behind = all(lies_behind(left.upper, right.lower) for left, right in pairwise(files))
        if len(files) < max(len(unit.files), 2) or not behind:
            cut_units.append(unit)
            continue
        share = sum(f.live_bytes for f in files) / unit.outputs
        before = itertools.accumulate((f.live_bytes for f in files), initial=0.0)
        # assign a file by its middle
        parts = itertools.groupby(
            zip(files, before, strict=False),
            key=lambda placed: int((placed[1] + placed[0].live_bytes / 2) / max(share, 1)),
        )
        cut_units += [Unit(tuple(f for f, _ in part), 1, in_sequence=True) for _, part in parts]
    return cut_units


def batches(units: Sequence[Unit], max_bytes: int) -> list[list[Unit]]:
    """Combine units into commits of limited bytes; a unit above the limit is a separate batch.

    Units in sequence are batched separately and limited in number, because each is a separate read.
    """
    combined: list[list[Unit]] = []
    size = 0
    for unit in sorted(units, key=lambda unit: unit.in_sequence):
        last = combined[-1] if combined else []
        full = size + unit.bytes > max_bytes or (unit.in_sequence and len(last) >= _MOST_SEQUENCES)
        if not last or full or last[-1].in_sequence != unit.in_sequence:
            combined.append([])
            size = 0
        combined[-1].append(unit)
        size += unit.bytes
    return combined


def cut_files(files: Sequence[FileFacts], max_bytes: int) -> list[list[FileFacts]]:
    """Cut files into parts of limited bytes, at least one file each."""
    return cut(files, max_bytes, lambda file: file.bytes)
