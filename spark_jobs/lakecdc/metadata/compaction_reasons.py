"""Reasons to compact data files, used by jobs to choose files and by workers to see that there are none."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

from lakecdc.contract.rewriting import CompactDataFilesOptions
from lakecdc.metadata.file_facts import FileFacts, warm_files
from lakecdc.metadata.file_sizes import output_count


@dataclass(frozen=True)
class Reasons:
    """Data files of one partition by the reason to rewrite them, as locations.

    :param dirty_files: files with many deleted rows.
    :param large_files: files to split.
    :param indebted_files: files with too many equality deletes.
    :param is_worth_packing: whether the small files are many enough, or enough for a full file.
    """

    small_files: frozenset[str]
    dirty_files: frozenset[str]
    large_files: frozenset[str]
    indebted_files: frozenset[str]
    unfiltered_files: frozenset[str]
    is_worth_packing: bool

    @staticmethod
    def counts(partitions: Iterable[Reasons]) -> dict[str, int]:
        """Count the files of each reason over some partitions."""
        all_reasons, names = list(partitions), [f.name for f in fields(Reasons) if f.name != "is_worth_packing"]
        return {name: sum(len(getattr(each, name)) for each in all_reasons) for name in names}

    @cached_property
    def alone(self) -> frozenset[str]:
        """Return the files that are worth a rewrite by themselves."""
        return self.dirty_files | self.large_files | self.indebted_files | self.unfiltered_files

    def worth_rewriting(self, files: Iterable[FileFacts]) -> list[FileFacts]:
        """Return the partition's files that are worth a rewrite."""
        locations = self.alone | (self.small_files if self.is_worth_packing else frozenset())
        return [file for file in files if file.location in locations]


def reasons(
    files: Sequence[FileFacts],
    options: CompactDataFilesOptions,
    target: int,
    large: float = math.inf,
    unfiltered: Collection[str] = (),
) -> Reasons:
    """Group a partition's data files by the reason to rewrite them; cold ones have none.

    :param target: target bytes per file.
    :param large: bytes above which a file is split.
    :param unfiltered: locations of files that lack Bloom filters.
    """
    files = warm_files(files)
    small = frozenset(f.location for f in files if f.bytes < target * options.small_file_ratio)
    dirty = frozenset(f.location for f in files if f.deleted and f.delete_ratio >= options.delete_ratio)
    indebted = frozenset(f.location for f in files if 0 < options.max_equality_deletes < f.equality_deletes)
    lacking = frozenset(f.location for f in files if f.location in unfiltered)
    return Reasons(
        small,
        dirty,
        frozenset(f.location for f in files if f.live_bytes > large),
        indebted,
        lacking,
        _is_worth_packing(files, dirty | indebted | lacking, small, options, target),
    )


def no_reason_to_compact(options: CompactDataFilesOptions, target: int, large: float) -> str:
    """Explain in the report why nothing is compacted."""
    return (
        f"no partition has {options.min_input_files} files below {options.small_file_ratio:g} of {target} bytes, "
        f"enough small ones to fill a file, a file above {large:.0f} bytes, "
        f"or one with {options.delete_ratio:g} of its rows deleted"
    )


def _is_worth_packing(
    files: Sequence[FileFacts],
    dirty: Collection[str],
    small: Collection[str],
    options: CompactDataFilesOptions,
    target: int,
) -> bool:
    """Check whether the small files are many enough, or enough for a full file.

    The rest of a dirty file may be small too and is counted with its size after the rewrite, or the next run would find
    it.
    """
    sizes = [f.live_bytes for f in files if f.location in small and f.location not in dirty]
    left = sum(f.live_bytes for f in files if f.location in dirty)
    if left:
        outputs = output_count(left, target, options.small_file_ratio)
        if left / outputs < target * options.small_file_ratio:
            sizes += [left / outputs] * outputs
    if len(small) >= options.min_input_files or len(sizes) >= options.min_input_files:
        return True
    return len(sizes) > 1 and sum(sizes) >= target
