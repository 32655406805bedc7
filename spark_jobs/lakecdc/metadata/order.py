"""How far a table's files are from lying in order, and what that means for sorting them."""

from __future__ import annotations

from collections.abc import Sequence

from lakecdc.contract.options import SortDataFilesOptions
from lakecdc.metadata.file_facts import FileFacts
from lakecdc.metadata.overlap import overlap_depth

#: why a table is not sorted, for the report
UNSORTED = (
    "there is nothing to sort by: the table has neither a sort order nor identifier fields; "
    "give options.columns, or set an order with ALTER TABLE … WRITE ORDERED BY"
)


def in_order(options: SortDataFilesOptions) -> str:
    """The same, of one whose files lie in order."""
    return f"no partition's files overlap deeper than {options.min_overlap_depth:g}"


def linear_depth(files: Sequence[FileFacts]) -> float:
    """Overlap depth of a partition's files in a linear order; rows without a key lie nowhere."""
    return overlap_depth([file.key_range for file in files if not file.keyless])


def keyed_rows(files: Sequence[FileFacts]) -> int:
    """Rows of a partition's files that have a place in the order."""
    return sum(file.rows for file in files if not file.keyless)


def average_depth(depths: Sequence[tuple[float, int]]) -> float:
    """Overlap depth of a table from depth and rows of its partitions."""
    rows = sum(weight for _, weight in depths)
    return round(sum(depth * weight for depth, weight in depths) / rows, 2) if rows else 1.0
