"""Overlap of a table's files in its sort order, and its meaning for sorting."""

from __future__ import annotations

from collections.abc import Sequence

from lakecdc.contract.rewriting import SortDataFilesOptions
from lakecdc.metadata.file_facts import FileFacts
from lakecdc.metadata.overlap import overlap_depth

#: reason in the report for a table without a sort order
UNSORTED = (
    "the table has neither a sort order nor identifier fields; "
    "set options.columns, or set an order with ALTER TABLE … WRITE ORDERED BY"
)


def in_order(options: SortDataFilesOptions) -> str:
    """Explain in the report why a table whose files are in order is not sorted."""
    return f"no partition's files overlap deeper than {options.min_overlap_depth:g}"


def linear_depth(files: Sequence[FileFacts]) -> float:
    """Return the overlap depth of a partition's files in a linear order; files without keys do not count."""
    return overlap_depth([file.key_range for file in files if not file.keyless])


def keyed_rows(files: Sequence[FileFacts]) -> int:
    """Count the rows of a partition's files with keys in the order."""
    return sum(file.rows for file in files if not file.keyless)


def average_depth(depths: Sequence[tuple[float, int]]) -> float:
    """Average the overlap depth of partitions, weighted by rows."""
    rows = sum(weight for _, weight in depths)
    return round(sum(depth * weight for depth, weight in depths) / rows, 2) if rows else 1.0
