"""Target sizes of data files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from lakecdc.metadata.totals import SMALL_FILE_RATIO

T = TypeVar("T")
# Iceberg's property and its default
_PROPERTY, _DEFAULT = "write.target-file-size-bytes", 512 * 1024**2
# minimum factor of an average output file over the size that would make it small again
_MARGIN = 1.05
# bytes of a table, and of its files: at least some dozens of files, so that readers can work in parallel
_TARGETS = ((16 * 1024**3, 128 * 1024**2), (1024**4, 256 * 1024**2))


def written_file_bytes(properties: Mapping[str, str]) -> int:
    """Return the size at which writers start another data file, by the table's properties."""
    return int(properties.get(_PROPERTY, _DEFAULT))


def target_file_bytes(properties: Mapping[str, str], table_bytes: int) -> int:
    """Return the target bytes per data file: the table's property, or else by the size of all its files."""
    if _PROPERTY in properties:
        return written_file_bytes(properties)
    return next((target for below, target in _TARGETS if table_bytes < below), _DEFAULT)


def output_count(live_bytes: float, target: int, small_file_ratio: float) -> int:
    """Compute a number of files near the target size, none of which counts as small again."""
    nearest = math.floor(live_bytes / target + 0.5)
    without_small = math.floor(live_bytes / (target * max(small_file_ratio, SMALL_FILE_RATIO) * _MARGIN))
    return max(1, min(nearest, without_small))


def cut(items: Iterable[T], limit: int, size_of: Callable[[T], int]) -> list[list[T]]:
    """Cut items, in order, into parts of limited size, at least one item each."""
    parts: list[list[T]] = []
    size = 0
    for item in items:
        if not parts or size + size_of(item) > limit:
            parts.append([])
            size = 0
        parts[-1].append(item)
        size += size_of(item)
    return parts
