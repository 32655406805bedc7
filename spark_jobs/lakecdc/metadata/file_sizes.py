"""How large data files should be."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lakecdc.metadata.totals import SMALL_FILE_RATIO

# Iceberg's property and its default
_PROPERTY, _DEFAULT = "write.target-file-size-bytes", 512 * 1024**2
# an average output file is at least this much above the size that would make it small again
_MARGIN = 1.05
# bytes of a table, and of its files: some dozens of files at least, so that readers have something to share out
_TARGETS = ((16 * 1024**3, 128 * 1024**2), (1024**4, 256 * 1024**2))


def written_file_bytes(properties: Mapping[str, str]) -> int:
    """Bytes at which writers begin another data file.

    :param properties: the table's.
    """
    return int(properties.get(_PROPERTY, _DEFAULT))


def target_file_bytes(properties: Mapping[str, str], table_bytes: int) -> int:
    """Bytes per data file that maintenance aims at: what the table says, else what suits its size.

    :param properties: the table's.
    :param table_bytes: of all its files.
    """
    if _PROPERTY in properties:
        return written_file_bytes(properties)
    return next((target for below, target in _TARGETS if table_bytes < below), _DEFAULT)


def output_count(live_bytes: float, target: int, small_file_ratio: float) -> int:
    """How many files to write so that each is near the target and none counts as small again.

    :param live_bytes: estimated bytes of data to write.
    :param target: bytes per file aimed at.
    :param small_file_ratio: share of the target below which a file is small.
    """
    nearest = math.floor(live_bytes / target + 0.5)
    without_small = math.floor(live_bytes / (target * max(small_file_ratio, SMALL_FILE_RATIO) * _MARGIN))
    return max(1, min(nearest, without_small))
